"""`affidavit audit …`: read, check and guard the evidence log."""

import typer

from affidavit.tools.cli.audit import forget, monitor, witness

app = typer.Typer(help="Read, check and guard the evidence log.", no_args_is_help=True, rich_markup_mode=None)
app.command("witness")(witness.witness)
app.command("monitor")(monitor.monitor)
app.command("forget")(forget.forget)
