"""`affidavit audit standby` and `affidavit audit promote`."""

import typer

from affidavit.tools.cli.audit.maintenance import maintain

_HOME = typer.Option("", "--home", envvar="AFFIDAVIT_HOME", help="the standby's data folder; empty for the default")


def standby(
    source: str = typer.Option(..., "--source", help="the published log: its tiles' folder, or http(s)://… of them"),
    home: str = _HOME,
    every: float = typer.Option(1.0, "--every", min=0.0, help="seconds between looks; 0 to catch up once and end"),
) -> None:
    """Keep a copy of a published log that can take over from it.

    Put the log's keys/log.pub into the data folder first, and keys/log.key to be able to promote it. Every record is
    proved to lead to the log's signed checkpoint before it is written; exit 4 when the log is not what was followed.
    """
    maintain("standby", "--source", source, "--every", str(every), *_given("--home", home))


def promote(
    home: str = _HOME,
    tiles_folder: str = typer.Option("", "--tiles-folder", help="where the log is published; empty for the setting's"),
    published: list[str] = typer.Option(
        [], "--published", help="another copy of the published log to catch up and compare with; may repeat"
    ),
    witnesses: str = typer.Option("", "--witnesses", help="witnesses to ask and to tell; empty for the setting's"),
    accept_loss: str = typer.Option(
        "", "--accept-loss", metavar="FIRST..LAST", help="give up just these published records; the log records it"
    ),
) -> None:
    """Make a stopped standby the log, in the next epoch; the server before it is fenced.

    Refused while a published or cosigned record is not here: the message names it. Exit codes: 3 no standby or in use,
    4 records missing or another past.
    """
    more = [part for place in published for part in ("--published", place)]
    options = [("--home", home), ("--tiles-folder", tiles_folder), ("--witnesses", witnesses)]
    given = [part for name, value in options for part in _given(name, value)]
    maintain("promote", *given, *more, *_given("--accept-loss", accept_loss))


def _given(name: str, value: str) -> list[str]:
    return [name, value] if value else []
