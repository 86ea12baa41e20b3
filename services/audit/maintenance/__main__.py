"""`python -m affidavit.services.audit.maintenance NAME …`: work on a log without its service (the names are below).

Settings are those of the audit service. Exit codes: 0 fine, 2 bad settings or wrong use, 3 the log is in use or its disk
refuses, 4 the log is damaged.
"""

import sys
from collections.abc import Sequence

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.note import NoteError
from affidavit.libs.settings import SettingsError, load
from affidavit.services.audit import backup, fsck, promote, repair, restore, rotate, standby
from affidavit.services.audit.archive import command as archive_command
from affidavit.services.audit.archive.places import open_archive
from affidavit.services.audit.offline import Here, Work, silent
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.settings import AuditSettings
from affidavit.services.audit.witnessat import WitnessAt

COMMANDS = {
    "archive": archive_command.main,
    "backup": backup.main,
    "fsck": fsck.main,
    "promote": promote.main,
    "repair": repair.main,
    "restore": restore.main,
    "rotate": rotate.main,
    "standby": standby.main,
}


def run(argv: Sequence[str], work: Work) -> int:
    """Run `work` on the log that the audit service's settings name; its exit code, or 2 bad settings, 3 the log is in
    use or its disk refuses, 4 the log is damaged."""
    try:
        settings = load(AuditSettings, "audit", argv).values
        witnesses = tuple(WitnessAt.parse(text) for text in settings.witnesses.split())
    except (SettingsError, NoteError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    archive = lambda: open_archive(settings.archive_place, settings.archive_endpoint)  # noqa: E731
    folders = LogFolders.below(settings.home_path, settings.head_path, settings.key_source)
    here = Here(folders, settings.tiles_path, archive, witnesses)
    try:
        return work(here, _progress if sys.stderr.isatty() else silent)
    except AffidavitError as error:
        sys.stderr.write(f"{error.reason}: {error.message}\n")
        return 4 if error.reason in ("LOG_DAMAGED", "LOG_FENCED", "HASH_MISMATCH") else 3
    except OSError as error:
        sys.stderr.write(f"LOG_UNAVAILABLE: {error}\n")
        return 3


def _progress(what: str, done: int, total: int) -> None:
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r{what}: {done} of {total}{end}")
    sys.stderr.flush()


def main() -> int:
    command = COMMANDS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if command is None:
        sys.stderr.write(f"say what to do: {', '.join(COMMANDS)}\n")
        return 2
    return command(sys.argv[2:], run)


if __name__ == "__main__":
    sys.exit(main())
