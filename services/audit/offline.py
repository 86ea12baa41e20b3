"""What the commands on a log without its service share: where the log is, progress, and how errors end them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.settings import SettingsError, load
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.settings import AuditSettings

Progress = Callable[[str, int, int], None]  # what is read, records done, records in all


@dataclass(frozen=True)
class Here:
    """The log of these settings."""

    folders: LogFolders
    tiles: Path


def run(argv: Sequence[str], work: Callable[[Here, Progress], int]) -> int:
    """Run `work` on the log that the audit service's settings name; its exit code, or 2 bad settings, 3 the log is in
    use or its disk refuses, 4 the log is damaged."""
    try:
        settings = load(AuditSettings, "audit", argv).values
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    home = Path(settings.home).expanduser()
    head = Path(settings.head_folder).expanduser() if settings.head_folder else None
    tiles = Path(settings.tiles_folder).expanduser() if settings.tiles_folder else home / "audit" / "tiles"
    try:
        return work(Here(LogFolders.below(home, head), tiles), _progress if sys.stderr.isatty() else silent)
    except AffidavitError as error:
        sys.stderr.write(f"{error.reason}: {error.message}\n")
        return 4 if error.reason == "LOG_DAMAGED" else 3
    except OSError as error:
        sys.stderr.write(f"LOG_UNAVAILABLE: {error}\n")
        return 3


def silent(what: str, done: int, total: int) -> None:
    """No progress."""


def _progress(what: str, done: int, total: int) -> None:
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r{what}: {done} of {total}{end}")
    sys.stderr.flush()
