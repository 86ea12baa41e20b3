"""What a start accepts.

1. One process at a time (`lock`).
2. Look at the store without changing it, up to its last whole commit.
3. Compare with the signed head. The store has the head's tree, and perhaps unacknowledged records after it: they are
   kept, and signed. The store has less, or another past: refuse, name what is missing, leave everything as it was.
4. Only then open it for writing.
"""

import fcntl
import os
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.durablefile import make_folder, sync_folder
from affidavit.libs.evidence.keys import PUBLIC_NAME, KeyFileError, Signer, create_key, public_beside
from affidavit.libs.evidence.keysource import KeySource
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.note import TreeHead
from affidavit.libs.evidence.record import parse_leaf
from affidavit.services.audit.head import HeadFile, SignedHead
from affidavit.services.audit.rotation import settle_rotation
from affidavit.services.audit.store import FORMAT, Store, create_store

ORIGIN = "affidavit.local/"
CHECKED_RECORDS = 10_000  # newest records whose bytes are hashed again at each start: 0.1 s


@dataclass(frozen=True)
class LogFolders:
    """Where a log lives."""

    store: Path
    head: Path
    keys: Path
    lock: Path
    key: KeySource = field(default_factory=KeySource)

    @property
    def standby(self) -> Path:
        """The file that marks a standby, from its first record until it is promoted."""
        return self.store.parent / "standby"

    @classmethod
    def below(cls, home: Path, head: Path | None = None, key: KeySource | None = None) -> "LogFolders":
        audit = home / "audit"
        return cls(audit / "store", head or audit / "head", home / "keys", audit / "lock", key or KeySource())


class LogLock:
    """Held from start to end by the one process that may open the log; the kernel lets go of a dead process's."""

    def __init__(self, path: Path) -> None:
        """Raises AffidavitError (LOG_UNAVAILABLE) when another process holds it."""
        make_folder(path.parent)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            message = f"the log in {path.parent} is in use by process {holder}; stop it first"
            raise AffidavitError("LOG_UNAVAILABLE", message) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True)
class OpenLog:
    """An accepted log: its store open for writing, its head signed over all of the store."""

    store: Store
    head_file: HeadFile
    key: Signer
    head: SignedHead
    frontier: Frontier
    newest_time: datetime
    unacknowledged: int  # records that the head found did not cover


def open_log(folders: LogFolders) -> OpenLog:
    """Open the log, or make a new one where there is none. The caller holds the lock.

    Raises:
        AffidavitError: LOG_DAMAGED: the rule above refuses it. LOG_UNAVAILABLE or STORAGE_FULL: the disk does.
    """
    refuse_standby(folders)
    make_folder(folders.head)
    head_file = HeadFile(folders.head)
    settle_rotation(folders.store, folders.head, folders.keys)
    note = head_file.read()
    if not folders.store.exists():
        key = _key(folders, may_be_new=note is None)
        head = None if note is None else head_file.open(note, key)
        if head is not None and head.tree.size:
            raise _damaged(f"the store {folders.store} is missing", 0, head)
        create_store(folders.store, head.tree.origin if head else ORIGIN + secrets.token_hex(16))
    key = _key(folders, may_be_new=False)
    for folder in (folders.store.parent, folders.head, folders.keys):
        sync_folder(folder)  # names that a killed process gave, and did not live to sync
    head = None if note is None else head_file.open(note, key)
    look = Store(folders.store, look=True)
    try:
        tree, newest_time = _judge(look, head, folders)
    finally:
        look.close()
    store = Store(folders.store)
    try:
        newest = head if head is not None and head.tree == tree else SignedHead.sign(tree, key)
        # Always, also after a failed write: what the kernel shows of the file is then perhaps not on the disk.
        head_file.replace(newest.note)
        frontier = Frontier.read(tree.size, store.node)
    except OSError as error:
        store.close()
        raise AffidavitError("LOG_UNAVAILABLE", f"the signed head {head_file.path} takes no write: {error}") from error
    except AffidavitError:
        store.close()
        raise
    unacknowledged = tree.size - (head.tree.size if head else 0)
    return OpenLog(store, head_file, key, newest, frontier, newest_time, unacknowledged)


def refuse_standby(folders: LogFolders) -> None:
    """Raises AffidavitError (LOG_FENCED) where a standby lives: two servers of one log would fork it."""
    if folders.standby.exists():
        message = (
            f"{folders.store.parent} is a standby's: affidavit audit promote makes it the log, and nothing else may"
        )
        raise AffidavitError("LOG_FENCED", message)


def _judge(look: Store, head: SignedHead | None, folders: LogFolders) -> tuple[TreeHead, datetime]:
    """The tree that the store has, and its newest record's time, if they are what the head signed; LOG_DAMAGED else."""
    if (version := look.format()) != FORMAT:
        raise AffidavitError("LOG_DAMAGED", f"the store {folders.store} has format {version!r}, not {FORMAT!r}")
    stored = look.tree()
    tree = TreeHead(look.origin() or "", *stored, head.tree.extensions if head else ())
    if head is None and stored.size:
        message = f"the signed head in {folders.head} is missing, and the store has {stored.size} records"
        raise AffidavitError("LOG_DAMAGED", f"{message}; restore the head: without it no loss can be ruled out")
    if head is not None and head.tree.origin != tree.origin:
        message = f"the signed head is of log {head.tree.origin}, the store of log {tree.origin}"
        raise AffidavitError("LOG_DAMAGED", f"{message}; restore the head that belongs to the store")
    if head is not None and stored.size < head.tree.size:
        raise _damaged(f"the store ends after {stored.size} records", stored.size, head)
    if head is not None and merkle.root(head.tree.size, look.node) != head.tree.root:
        message = f"the first {head.tree.size} records of the store are not those that the head signed"
        raise AffidavitError("LOG_DAMAGED", f"{message}: another past was put in its place; restore from a backup")
    if stored.size < (least := _known_keys(folders).least_size):
        message = f"the store has {stored.size} records, and the log's key was rotated at record {least - 1}"
        raise AffidavitError("LOG_DAMAGED", f"{message}: an earlier copy was put in its place; restore the newest")
    if merkle.root(stored.size, look.node) != stored.root:
        raise AffidavitError("LOG_DAMAGED", f"the store's tree of {stored.size} records contradicts itself")
    return tree, _check_newest(look, stored.size)


def _check_newest(look: Store, size: int) -> datetime:
    leaf = None
    for index in range(max(0, size - CHECKED_RECORDS), size):
        leaf = look.leaf(index)
        if leaf is None:
            raise AffidavitError("LOG_DAMAGED", f"record {index} is missing from the store; restore it from a backup")
        if merkle.leaf_hash(leaf) != look.node(0, index):
            message = f"record {index} is not what was signed: its bytes were changed; restore it from a backup"
            raise AffidavitError("LOG_DAMAGED", message)
    if leaf is None:
        return datetime.min.replace(tzinfo=UTC)
    try:
        return parse_leaf(leaf).time
    except ValueError as error:
        raise AffidavitError("LOG_DAMAGED", f"record {size - 1} cannot be read: {error}") from None


def _damaged(what: str, size: int, head: SignedHead) -> AffidavitError:
    count = head.tree.size - size
    lost = f"record {size} is" if count == 1 else f"records {size} to {head.tree.size - 1} are"
    message = f"{what}, the signed head covers {head.tree.size}: {lost} missing; restore the store from a backup"
    return AffidavitError("LOG_DAMAGED", message)


def _key(folders: LogFolders, *, may_be_new: bool) -> Signer:
    """What signs for the log; its own key is made only for a log that has nothing yet."""
    source, keys = folders.key, folders.keys
    where = source.where(keys)
    try:
        signer = source.load(keys)
    except FileNotFoundError:
        if not source.own:
            raise AffidavitError("LOG_UNAVAILABLE", f"the log's key {where} is missing; put it there") from None
        if may_be_new and not (keys / PUBLIC_NAME).exists():
            return create_key(keys)
        message = f"the log's key {where} is missing; restore it: without it the log cannot go on"
        raise AffidavitError("LOG_DAMAGED", f"{message}. A key elsewhere is named by AFFIDAVIT_AUDIT_KEY") from None
    except (KeyFileError, OSError) as error:
        raise AffidavitError("LOG_DAMAGED" if source.own else "LOG_UNAVAILABLE", str(error)) from None
    try:
        keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        public_beside(keys, signer)
    except KeyFileError:
        raise _other_key(where, folders, signer) from None
    return signer


def _other_key(where: str, folders: LogFolders, signer: Signer) -> AffidavitError:
    for retired in _known_keys(folders).retired:
        if retired.key == signer.public_key():
            message = f"{where} is a key that was retired at record {retired.until - 1}: name the one that followed it"
            return AffidavitError(
                "LOG_UNAVAILABLE", f"{message} with AFFIDAVIT_AUDIT_KEY (empty for the log's own file)"
            )
    message = f"{folders.keys / PUBLIC_NAME} is not the public half of {where}; restore the pair that belongs together"
    return AffidavitError("LOG_DAMAGED", message)


def _known_keys(folders: LogFolders) -> LogKeys:
    try:
        return LogKeys.read(folders.keys)
    except (KeyFileError, OSError) as error:
        raise AffidavitError("LOG_DAMAGED", f"a public key of the log cannot be read: {error}; restore it") from None
