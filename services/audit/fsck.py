"""`affidavit audit fsck`: check all of a stopped log, change nothing.

Every leaf, hash, key, side and tile, and the head, against the signed head. Settings are those of the audit service;
`--json` prints one object. Exit codes: 0 whole, 2 bad settings, 3 the log is in use or cannot be read, 4 damaged.
"""

import fcntl
import json
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.keys import PUBLIC_NAME, KeyFileError
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.note import NoteError, TreeHead
from affidavit.services.audit.archive.elsewhere import Elsewhere, nowhere
from affidavit.services.audit.head import HeadFile
from affidavit.services.audit.keycheck import check_rotations, current_key
from affidavit.services.audit.offline import Here, Progress, Run
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.store import Store
from affidavit.services.audit.storecheck import BACKUP, Finding, StoreCheck
from affidavit.services.audit.tilecheck import check_tiles

_HEAD = "restore the head (audit/head/checkpoint) that belongs to the log: without it no loss can be ruled out"
_KEY = "restore the keys folder from where its copy is kept: without its key the log cannot go on"


@dataclass
class Report:
    """What a check found."""

    origin: str = ""
    size: int = 0  # records under the signed head
    unsigned: int = 0  # records after them, which nobody was told of
    erased: int = 0  # records whose salt is not there
    released: int = 0  # records whose leaf was read from the archive
    whole_in_tiles: int = 0  # when the store is damaged: leading records that the tiles have whole
    findings: list[Finding] = field(default_factory=list[Finding])

    def as_json(self) -> str:
        findings = [finding._asdict() for finding in self.findings]
        return json.dumps(self.__dict__ | {"whole": not findings, "findings": findings}, indent=1)

    def as_text(self) -> str:
        lines = [f"{finding.part}: {finding.what}\n    {finding.restore}" for finding in self.findings]
        name = f"log {self.origin or 'unknown'}"
        if not self.findings:
            extra = f", {self.unsigned} more that were never acknowledged" if self.unsigned else ""
            gone = f", {self.released} in the archive alone" if self.released else ""
            lines.append(
                f"{name}: {self.size} records whole under the signed head{extra}; {self.erased} without a salt{gone}"
            )
        else:
            lines.append(f"{name}: {len(self.findings)} findings; nothing was changed")
            if self.whole_in_tiles:
                lines.append(f"the tiles have records 0 to {self.whole_in_tiles - 1} whole{self._repair()}")
        return "\n".join(lines)

    def _repair(self) -> str:
        if self.whole_in_tiles < self.size:
            return f": not records {self.whole_in_tiles} to {self.size - 1}, so they do not repair this log"
        return (
            ": without a backup as new, move audit/store away and run affidavit audit repair (it has no salts and keys)"
        )


@contextmanager
def stopped(lock: Path) -> Generator[None]:
    """Keep the service from starting; the lock file is not written.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: a process holds it.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:  # no service ever ran on it, as on a copy
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        message = f"the log in {lock.parent} is in use by process {holder}; stop it first (affidavit down)"
        raise AffidavitError("LOG_UNAVAILABLE", message) from None
    finally:
        os.close(descriptor)


def check_log(
    folders: LogFolders,
    tiles: Path,
    progress: Progress,
    *,
    private_key: bool = True,
    elsewhere: Elsewhere = nowhere,
) -> Report:
    """Check a log that no process has open; damage is in the report. A backup may be without its `private_key`. Leaves
    that were released are read from `elsewhere`.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: there is no log, or a folder cannot be read.
    """
    if not (folders.store.exists() or HeadFile(folders.head).path.exists()):
        raise AffidavitError("LOG_UNAVAILABLE", f"there is no log in {folders.store.parent}")
    report = Report()
    keys = _check_keys(folders, report, private_key=private_key)
    head = _check_head(HeadFile(folders.head), keys, report)
    store = _check_store(folders.store, head, report, progress, elsewhere)
    try:
        origin = head.origin if head else store.origin() if store else None
        if keys is not None and origin:
            report.origin = origin
            whole = store if store and not any(f.part in _OF_STORE for f in report.findings) else None
            if whole is not None:
                report.findings += check_rotations(folders.keys, keys, whole)
            found, report.whole_in_tiles = check_tiles(tiles, keys.verifiers(origin), whole, progress, elsewhere)
            report.findings += found
    finally:
        if store is not None:
            store.close()
    return report


_OF_STORE = ("store", "leaf", "archive", "hash")


def _check_keys(folders: LogFolders, report: Report, *, private_key: bool) -> LogKeys | None:
    folder, public = folders.keys, None
    try:
        public = LogKeys.read(folder)
    except FileNotFoundError:
        what = f"{folder / PUBLIC_NAME} is missing"
        report.findings.append(Finding("log key", what, "the next start writes it again from the private key"))
    except (KeyFileError, OSError) as error:
        report.findings.append(Finding("log key", str(error), _KEY))
    try:
        derived = folders.key.load(folder).public_key()
    except FileNotFoundError:
        if private_key:
            report.findings.append(Finding("log key", f"{folders.key.where(folder)} is missing", _KEY))
        return public
    except (KeyFileError, OSError) as error:
        report.findings.append(Finding("log key", str(error), _KEY))
        return public
    if public is not None and public.current != derived:
        what = f"{folder / PUBLIC_NAME} is not the public half of {Path(folders.key.where(folder)).name}"
        report.findings.append(Finding("log key", what, _KEY))
    return current_key(derived, public)


def _check_head(file: HeadFile, keys: LogKeys | None, report: Report) -> TreeHead | None:
    try:
        note = file.read()
    except AffidavitError as error:
        report.findings.append(Finding("head", error.message, _HEAD))
        return None
    if note is None:
        report.findings.append(Finding("head", f"{file.path} is missing", _HEAD))
        return None
    if keys is None:
        report.findings.append(Finding("head", f"{file.path} cannot be checked without the log's key", _KEY))
        return None
    try:
        return LogKeys(keys.current).open(note)
    except NoteError as error:
        report.findings.append(Finding("head", f"{file.path} is not this log's: {error}", _HEAD))
        return None


def _check_store(
    path: Path, head: TreeHead | None, report: Report, progress: Progress, elsewhere: Elsewhere
) -> Store | None:
    """Check it, and leave it open for the tiles; None when it does not open."""
    report.size = head.size if head else 0
    if not path.exists():
        report.findings.append(Finding("store", f"{path} is missing, and with it {report.size} records", BACKUP))
        return None
    try:
        store = Store(path, look=True)
    except AffidavitError as error:
        if error.reason != "LOG_DAMAGED":
            raise
        report.findings.append(Finding("store", error.message, BACKUP))
        return None
    try:
        check = StoreCheck(store, head, progress, elsewhere)
        check.run()
    except BaseException:
        store.close()
        raise
    report.findings += check.findings
    report.unsigned = max(0, check.size - report.size)
    report.erased = check.erased
    report.released = check.released
    return store


def main(argv: Sequence[str], run: Run) -> int:
    """The command, with the arguments after its name; its exit code."""

    def work(here: Here, progress: Progress) -> int:
        with stopped(here.folders.lock):
            report = check_log(here.folders, here.tiles, progress, elsewhere=here.elsewhere)
        sys.stdout.write((report.as_json() if "--json" in argv else report.as_text()) + "\n")
        return 4 if report.findings else 0

    return run([argument for argument in argv if argument != "--json"], work)
