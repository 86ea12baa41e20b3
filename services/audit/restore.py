"""`affidavit audit restore SOURCE`: put a backup where there is no log. Nothing is overwritten.

The backup is checked wholly before anything is written. The store comes last, by a rename: after a crash the same
command goes on.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.durablefile import create_file, sync_folder
from affidavit.libs.evidence.keys import PRIVATE_NAME, PUBLIC_NAME, load_public_key
from affidavit.libs.evidence.note import Verifier
from affidavit.libs.evidence.tilepaths import CHECKPOINT
from affidavit.services.audit.backup import SIDE
from affidavit.services.audit.fsck import Report, check_log, stopped
from affidavit.services.audit.head import HeadFile
from affidavit.services.audit.offline import Here, Progress, Run
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.tilecheck import TileCheck


def restore(source: Path, here: Here, progress: Progress) -> Report:
    """Restore the backup in `source`; what its check said of it.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: there is a log already, or no backup. LOG_DAMAGED: the backup is damaged, of
            another log than the keys that are here, or older than the tiles that are here.
    """
    backup, target = LogFolders.below(source), here.folders
    if target.store.exists():
        raise AffidavitError("LOG_UNAVAILABLE", f"{target.store} is there; move it away first, nothing is overwritten")
    report = check_log(backup, source / "audit" / "tiles", progress, private_key=False)
    if report.findings:
        raise AffidavitError("LOG_DAMAGED", f"the backup is not restored:\n{report.as_text()}")
    _refuse_older(report, backup, here.tiles, progress)
    files = [
        *((path, target.keys / path.name, 0o644) for path in sorted(backup.keys.glob("*.pub"))),
        (backup.keys / PRIVATE_NAME, target.keys / PRIVATE_NAME, 0o600),
    ]
    for old, new, _ in files:
        if old.exists() and new.exists() and old.read_bytes() != new.read_bytes():
            message = f"{new} is there and is not the backup's; move it away first, nothing is overwritten"
            raise AffidavitError("LOG_UNAVAILABLE", message)
    head, standing = HeadFile(backup.head).read(), HeadFile(target.head).read()
    if head is not None and standing is not None and head != standing:
        message = (
            f"{HeadFile(target.head).path} is there and is not the backup's; move it away first, nothing is overwritten"
        )
        raise AffidavitError("LOG_UNAVAILABLE", message)
    with stopped(target.lock):
        for old, new, mode in files:
            if old.exists() and not new.exists():
                new.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                create_file(new, old.read_bytes(), mode)
        if head is not None and standing is None:
            target.head.mkdir(parents=True, exist_ok=True, mode=0o700)
            HeadFile(target.head).replace(head)
        side = backup.store.parent / SIDE
        if side.is_dir() and not (target.store.parent / SIDE).exists():
            _copy_folder(side, target.store.parent / SIDE)
        _copy_folder(backup.store, target.store)
    return report


def _refuse_older(report: Report, backup: LogFolders, tiles: Path, progress: Progress) -> None:
    """The tiles that stand here were published by the lost log: they tell an old backup from the newest."""
    check = TileCheck(tiles, Verifier(report.origin, load_public_key(backup.keys / PUBLIC_NAME)), progress)
    published = check.head()
    if check.findings:
        raise AffidavitError("LOG_DAMAGED", f"{check.findings[0].what}; move {tiles} away if they are another log's")
    if published is not None and published.size > report.size:
        message = (
            f"the backup has {report.size} records, the log that published {tiles} had {published.size}: restore a newer "
            f"backup; if there is none, records {report.size} to {published.size - 1} are lost to the service: keep "
            f"{tiles} as their evidence, moved away, and restore again"
        )
        raise AffidavitError("LOG_DAMAGED", message)


def _copy_folder(source: Path, target: Path) -> None:
    building = target.with_name(target.name + ".new")
    shutil.rmtree(building, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, building)
    for path in (*building.rglob("*"), building):
        _sync(path)
    building.rename(target)
    sync_folder(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main(argv: Sequence[str], run: Run) -> int:
    """The command, with the arguments after its name; its exit code."""
    arguments = list(argv)
    if not arguments or arguments[0].startswith("-"):
        sys.stderr.write("restore: say from where, the folder that affidavit audit backup made\n")
        return 2

    def work(here: Here, progress: Progress) -> int:
        report = restore(Path(arguments[0]).expanduser().absolute(), here, progress)
        lines = [f"log {report.origin}: {report.size} records restored to {here.folders.store.parent}"]
        lines.append("records that were acknowledged after this backup was made are not in it")
        if not (here.tiles / CHECKPOINT).exists():
            lines.append(
                "no published tiles are here to compare with: ask a witness or a monitor whether it is the newest"
            )
        if not (here.folders.keys / PRIVATE_NAME).exists():
            lines.append(f"the log starts once its private key is in {here.folders.keys / PRIVATE_NAME} (mode 0600)")
        sys.stdout.write("\n".join(lines) + "\n")
        return 0

    return run(arguments[1:], work)
