"""What the commands on a log without its service share: where the log is, and progress."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from affidavit.services.audit.archive.elsewhere import Elsewhere, from_archive
from affidavit.services.audit.archive.objects import ObjectStore
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.witnessat import WitnessAt

Progress = Callable[[str, int, int], None]  # what is read, records done, records in all


@dataclass(frozen=True)
class Here:
    """The log of these settings."""

    folders: LogFolders
    tiles: Path
    archive: Callable[[], ObjectStore]
    witnesses: tuple[WitnessAt, ...] = ()

    @property
    def elsewhere(self) -> Elsewhere:
        """Reads leaves that were released to the archive."""
        return from_archive(self.archive)


Work = Callable[[Here, Progress], int]
# Runs work on the log that the settings among the arguments name; its exit code, or that of the error that ended it.
Run = Callable[[Sequence[str], Work], int]


def silent(what: str, done: int, total: int) -> None:
    """No progress."""


def taken(argv: Sequence[str], *names: str) -> tuple[list[str], list[str]]:
    """The values of a command's own options (empty without, joined by spaces when given again), and the other arguments."""
    values: dict[str, list[str]] = {name: [] for name in names}
    rest: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        if argument in values:
            values[argument].append(next(arguments, ""))
        else:
            rest.append(argument)
    return [" ".join(values[name]) for name in names], rest
