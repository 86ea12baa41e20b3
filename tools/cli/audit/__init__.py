"""`affidavit audit …`: read, check and guard the evidence log."""

import typer

from affidavit.tools.cli.audit import monitor, witness

app = typer.Typer(help="Read, check and guard the evidence log.", no_args_is_help=True)
app.command("witness")(witness.witness)
app.command("monitor")(monitor.monitor)
