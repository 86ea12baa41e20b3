"""`affidavit audit fsck`: check all of a stopped log."""

import typer

from affidavit.tools.cli.audit.maintenance import maintain


def fsck(
    home: str = typer.Option("", "--home", envvar="AFFIDAVIT_HOME", help="data folder; empty for the default"),
    head_folder: str = typer.Option("", "--head-folder", help="folder of the signed head; empty for the setting's"),
    tiles_folder: str = typer.Option("", "--tiles-folder", help="the published log; empty for the setting's"),
    as_json: bool = typer.Option(False, "--json", help="one JSON object"),
) -> None:
    """Check every record, hash, key, salt and tile of a stopped log against its signed head. Changes nothing.

    Says what is wrong, where, and how to restore it. Exit codes: 0 whole, 3 in use or not readable, 4 damaged.
    """
    flags = [("--home", home), ("--head-folder", head_folder), ("--tiles-folder", tiles_folder)]
    given = [part for flag, value in flags if value for part in (flag, value)]
    maintain("fsck", *given, *(["--json"] if as_json else []))
