"""`affidavit audit backup`, `affidavit audit restore` and `affidavit audit repair`."""

import typer

from affidavit.tools.cli.audit.maintenance import maintain

_HOME = typer.Option("", "--home", envvar="AFFIDAVIT_HOME", help="data folder; empty for the default")


def backup(
    destination: str = typer.Argument(metavar="DEST", help="a folder that is not there yet"),
    with_keys: bool = typer.Option(False, "--with-keys", help="also the log's private key: keep the copy as one"),
    home: str = _HOME,
) -> None:
    """Copy the evidence log, running or stopped, as its newest signed head covers it.

    Every record is hashed on the way; the copy appears only if all of them lead to the signed root.
    """
    maintain("backup", destination, *(["--with-keys"] if with_keys else []), *_given(home))


def restore(
    source: str = typer.Argument(metavar="SOURCE", help="a folder that affidavit audit backup made"),
    home: str = _HOME,
) -> None:
    """Put a backup where there is no log. It is checked wholly first, as fsck does; nothing is overwritten."""
    maintain("restore", source, *_given(home))


def repair(
    home: str = _HOME,
    tiles_folder: str = typer.Option("", "--tiles-folder", help="the published log; empty for the setting's"),
    from_archive: bool = typer.Option(
        False, "--from-archive", help="from the archive instead, where tiles are gone too"
    ),
    archive: str = typer.Option("", "--archive", help="folder or s3://bucket/prefix; empty for the setting's"),
) -> None:
    """Build the store again from the published tiles, or the archive, where it is gone and there is no newer backup.

    Kept only if every record leads to the signed root. Neither has salts or idempotency keys.
    """
    flags = [("--tiles-folder", tiles_folder), ("--archive", archive)]
    given = [part for flag, value in flags if value for part in (flag, value)]
    maintain("repair", *_given(home), *given, *(["--from-archive"] if from_archive else []))


def _given(home: str) -> list[str]:
    return ["--home", home] if home else []
