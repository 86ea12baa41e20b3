"""`affidavit audit backup` and `affidavit audit restore`."""

import os
import sys

import typer

_HOME = typer.Option("", "--home", envvar="AFFIDAVIT_HOME", help="data folder; empty for the default")


def backup(
    destination: str = typer.Argument(metavar="DEST", help="a folder that is not there yet"),
    with_keys: bool = typer.Option(False, "--with-keys", help="also the log's private key: keep the copy as one"),
    home: str = _HOME,
) -> None:
    """Copy the evidence log, running or stopped, as its newest signed head covers it.

    Every record is hashed on the way; the copy appears only if all of them lead to the signed root.
    """
    _run("backup", destination, *(["--with-keys"] if with_keys else []), *_given(home))


def restore(
    source: str = typer.Argument(metavar="SOURCE", help="a folder that affidavit audit backup made"),
    home: str = _HOME,
) -> None:
    """Put a backup where there is no log. It is checked wholly first, as fsck does; nothing is overwritten."""
    _run("restore", source, *_given(home))


def _given(home: str) -> list[str]:
    return ["--home", home] if home else []


def _run(name: str, *arguments: str) -> None:
    command = [sys.executable, "-m", f"affidavit.services.audit.{name}", *arguments]
    os.execv(command[0], command)  # the store is opened by the service's own code, in a process of its own
