"""`affidavit audit`: read the evidence log, prove what is in it, pack it for an auditor. One file a command."""

import typer

from affidavit.tools.cli.audit import ls, pack, prove, show, tail

app = typer.Typer(help="Read, prove and pack records of the evidence log.", no_args_is_help=True, rich_markup_mode=None)
app.command("ls")(ls.ls)
app.command("show")(show.show)
app.command("prove")(prove.prove)
app.command("tail")(tail.tail)
app.command("pack")(pack.pack)
