"""`affidavit audit standby --source FOLDER|URL`: keep a copy of a published log, ready to be promoted.

It needs `keys/log.pub` of the log, and for a promotion `keys/log.key`. Until then the folder's mark, `audit/standby`,
keeps the service from starting on it.
"""

import json
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.durablefile import replace_file
from affidavit.libs.evidence.epoch import epoch_of
from affidavit.libs.evidence.keys import PUBLIC_NAME, KeyFileError
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.note import NoteError
from affidavit.libs.evidence.tiles import TileError
from affidavit.services.audit.following import Follower, Forked, Source, refused
from affidavit.services.audit.offline import Here, Progress, Run, taken
from affidavit.services.audit.opening import LogFolders, LogLock

_MARK_VERSION = 1


def mark(folders: LogFolders, source: str) -> None:
    """Make `folders` a standby's.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: there is a log of its own.
    """
    if folders.store.exists() and not folders.standby.exists():
        raise AffidavitError(
            "LOG_UNAVAILABLE", f"{folders.store} is a log's own; give the standby a data folder of its own"
        )
    folders.standby.parent.mkdir(parents=True, exist_ok=True)
    replace_file(folders.standby, json.dumps({"v": _MARK_VERSION, "source": source}).encode())


def marked_source(folders: LogFolders) -> str:
    """What the standby of `folders` followed.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: there is no standby.
    """
    try:
        mark_ = json.loads(folders.standby.read_bytes())
        return str(mark_["source"])
    except FileNotFoundError:
        raise AffidavitError("LOG_UNAVAILABLE", f"{folders.store.parent} is no standby's") from None
    except (ValueError, KeyError, TypeError):
        raise AffidavitError("LOG_DAMAGED", f"{folders.standby} names no source; start the standby again") from None


def open_follower(folders: LogFolders) -> Follower:
    """The standby's copy. Raises AffidavitError."""
    public = folders.keys / PUBLIC_NAME
    try:
        return Follower(folders, LogKeys.read(folders.keys))
    except FileNotFoundError:
        message = f"{public} is missing: copy it from the log (and {folders.keys}/log.key, to be able to take over)"
        raise AffidavitError("LOG_UNAVAILABLE", message) from None
    except (KeyFileError, NoteError) as error:
        raise AffidavitError("LOG_DAMAGED", str(error)) from None


def _keep_up(folders: LogFolders, follower: Follower, source: Source, every_s: float, stop: threading.Event) -> None:
    while True:
        try:
            before = follower.head
            follower.follow(source)
            if marked_source(folders) != source.where:  # only what continues the copy becomes what a promotion asks
                mark(folders, source.where)
            if follower.head is not None and follower.head != before:
                sys.stdout.write(f"standby: {follower.head.size} records, epoch {epoch_of(follower.head)}\n")
                sys.stdout.flush()
        except Forked as error:
            raise refused(error) from None
        except (OSError, TileError) as error:
            if not every_s:
                raise AffidavitError("LOG_UNAVAILABLE", f"{source.where} cannot be followed: {error}") from None
            sys.stderr.write(f"{source.where} cannot be followed now: {error}\n")
        if not every_s or stop.wait(every_s):
            return


def main(argv: Sequence[str], run: Run) -> int:
    """The command, with the arguments after its name; its exit code."""
    (where, every), rest = taken(argv, "--source", "--every")
    if not where:
        sys.stderr.write("standby: say what to follow, --source FOLDER or http(s)://…: the published log\n")
        return 2
    stop = threading.Event()

    def end(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)

    def work(here: Here, _: Progress) -> int:
        source = Source.at(where)
        if not here.folders.standby.exists():
            mark(here.folders, where)
        lock = LogLock(here.folders.lock)
        try:
            follower = open_follower(here.folders)
            try:
                _keep_up(here.folders, follower, source, float(every or 1), stop)
            finally:
                follower.close()
        finally:
            lock.release()
        return 0

    return run(rest, work)
