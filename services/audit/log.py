"""The evidence log: what is durable, signed and provable before anyone is told.

A group commit, in order:
1. places, leaves and the tree's growth, in memory (`group.py`);
2. one write batch into the store, synced;
3. the signed head, synced, outside the store;
4. only then the receipts, with proofs against that head.

A crash after 2 leaves records that nobody was told of: the next start keeps and signs them, and a caller that comes
again with the same key gets their receipts. A failure in 2 or 3 ends all appending until `reopen` has read from the
disk what is really there: an fsync is never tried again as if nothing had happened.
"""

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.keys import public_pem
from affidavit.libs.evidence.note import Verifier, open_checkpoint
from affidavit.libs.telemetry import get_logger
from affidavit.services.audit import metrics
from affidavit.services.audit.archive.elsewhere import Elsewhere, nowhere
from affidavit.services.audit.archive.ledger import Archived, Ledger, Plan
from affidavit.services.audit.database import MEMTABLE_BYTES
from affidavit.services.audit.entry import Entry
from affidavit.services.audit.group import Group, Grown, Place
from affidavit.services.audit.head import SignedHead
from affidavit.services.audit.opening import LogFolders, LogLock, OpenLog, open_log

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_log = get_logger("log")


@dataclass(frozen=True)
class Proven:
    """A record with its proof: the parts of a receipt."""

    index: int
    leaf: bytes
    salt: bytes  # empty once erased
    head: SignedHead
    path: Sequence[bytes]
    repeated: bool = False


@dataclass(frozen=True)
class InArchive:
    """A repeated key whose record is in the archive alone: to be read by `record`, which may wait, on another thread."""

    index: int


class EvidenceLog:
    """The one log of this process.

    `append`, `touch`, `reopen` and `close` belong to one thread. All that only reads is for any thread: what it reads
    was committed and never changes.
    """

    def __init__(self, folders: LogFolders, elsewhere: Elsewhere = nowhere) -> None:
        """`elsewhere` reads leaves that were released to the archive.

        Raises:
            AffidavitError: see `LogLock` and `open_log`.
        """
        self._elsewhere = elsewhere
        self._folders = folders
        self._lock = LogLock(folders.lock)
        self._failure: AffidavitError | None = None
        self._fenced: AffidavitError | None = None
        try:
            self._take(open_log(folders))
        except BaseException:
            self._lock.release()
            raise

    @property
    def head(self) -> SignedHead:
        """The newest signed head; everything acknowledged is under it."""
        return self._head

    def fence(self, why: str) -> None:
        """Append nothing any more, in this process: another server has taken the log over. For any thread."""
        if self._fenced is None:
            self._fenced = AffidavitError("LOG_FENCED", why)
            metrics.failures.labels("LOG_FENCED").inc()
            _log.error("appending_stopped", reason="LOG_FENCED", message=why)

    @property
    def keys_folder(self) -> Path:
        """Where the log's keys are, retired ones too."""
        return self._folders.keys

    @property
    def failure(self) -> AffidavitError | None:
        """Why nothing can be appended now."""
        return self._failure

    def append(self, entries: Sequence[Entry]) -> list[Proven | InArchive | AffidavitError]:
        """Commit `entries` as one group: for each its proof, or why it has no place.

        Raises:
            AffidavitError: STORAGE_FULL or LOG_UNAVAILABLE: none of them is acknowledged.
        """
        self._refuse_after_failure()
        begin = time.perf_counter()
        self._newest_time = max(self._newest_time, datetime.now(UTC))  # a clock set back does not set the log back
        group = Group(self._open.store, self._frontier, self._newest_time)
        places = group.place(entries)
        grown = group.grow()
        if grown is not None:
            self._commit(grown)
            metrics.batch_records.observe(len(grown.records))
            metrics.commit_seconds.observe(time.perf_counter() - begin)
        return [place if isinstance(place, AffidavitError) else self._proven(grown, place) for place in places]

    def touch(self, count: int) -> None:
        """Show that the head verifies, the newest record is whole and the disk takes a synced write.

        Raises:
            AffidavitError: it does not; after a failed write nothing is appended any more.
        """
        self._refuse_after_failure()
        head = self._head
        open_checkpoint(head.note, [Verifier(head.tree.origin, self._open.key.public_key())])
        if head.tree.size:
            self.record(head.tree.size - 1)
        try:
            self._open.store.touch(count)
        except AffidavitError as error:
            raise self._fail(error) from error

    def forget(self, tenant: str, request_id: str) -> list[int]:
        """Erase the salts of a request's records, durably and from the files; their indices, in rising order.

        Raises:
            AffidavitError: RECORD_NOT_FOUND: no such request. Others as `append`: ask again once the log takes writes.
        """
        self._refuse_after_failure()
        indices = self.indices_of(tenant, request_id)
        if not indices:
            raise AffidavitError("RECORD_NOT_FOUND", f"no record of request id {request_id!r} of tenant {tenant!r}")
        try:
            self._open.store.erase(indices)
        except AffidavitError as error:
            raise self._fail(error) from error
        return indices

    def reopen(self) -> None:
        """After a failed write: if the disk takes a write again, open the log anew, by the rule of every start.

        Raises:
            AffidavitError: it still fails; reads go on as they can.
        """
        if not self._failure:
            return
        self._probe()
        try:
            self._open.store.close()
        except AffidavitError as error:  # no news: this store had failed
            _log.info("failed_store_closed", message=error.message)
        self._take(open_log(self._folders))
        self._failure = None
        _log.info("reopened", records=self._head.tree.size)

    def record(self, index: int) -> Proven:
        """The record at `index`, proved against the newest head.

        Raises:
            AffidavitError: RECORD_NOT_FOUND; LOG_DAMAGED: the store's bytes are not those that were signed.
        """
        head, store = self._head, self._open.store
        if index >= head.tree.size:
            raise AffidavitError("RECORD_NOT_FOUND", f"no record {index}; the log has {head.tree.size}")
        leaf = self.leaf(index)
        side = store.side(index)
        path = self.prove(index, head.tree.size)
        try:
            merkle.verify_inclusion(index, head.tree.size, merkle.leaf_hash(leaf), path, head.tree.root)
        except merkle.ProofError:
            message = f"record {index} is not what was signed: the store was changed; restore it from a backup"
            raise AffidavitError("LOG_DAMAGED", message) from None
        return Proven(index, leaf, side.salt if side else b"", head, path)

    def find(self, key: bytes) -> int:
        """The index of the record with this idempotency key.

        Raises:
            AffidavitError: RECORD_NOT_FOUND.
        """
        index = self._open.store.find(key)
        if index is None or index >= self._head.tree.size:  # a record that was never acknowledged is not there yet
            request_id = key.split(b"\0")[1].decode()
            raise AffidavitError("RECORD_NOT_FOUND", f"no record of request id {request_id!r} and this step")
        return index

    def prove(self, index: int, size: int) -> list[bytes]:
        """The audit path of record `index` to the root of the first `size` records.

        Raises:
            AffidavitError: RECORD_NOT_FOUND or INVALID_OPTION: there is no such tree.
        """
        newest = self._head.tree.size
        if index >= newest:
            raise AffidavitError("RECORD_NOT_FOUND", f"no record {index}; the log has {newest}")
        if not index < size <= newest:
            message = f"tree_size must be {index + 1} to {newest} for record {index}"
            raise AffidavitError("INVALID_OPTION", message, field="tree_size")
        return merkle.prove_inclusion(index, size, self._open.store.node)

    def prove_consistency(self, first: int, second: int) -> list[bytes]:
        """That the first `second` records continue the first `first` (RFC 9162 2.1.4.1).

        Raises:
            AffidavitError: INVALID_OPTION: there are no such trees. LOG_DAMAGED: the store lacks a hash.
        """
        newest = self._head.tree.size
        if not 0 < first <= newest:
            message = f"first_size must be 1 to {newest}, not {first}"
            raise AffidavitError("INVALID_OPTION", message, field="first_size")
        if not first <= second <= newest:
            message = f"second_size must be {first} to {newest}, not {second}"
            raise AffidavitError("INVALID_OPTION", message, field="second_size")
        return merkle.prove_consistency(first, second, self._open.store.node)

    def root(self, size: int) -> bytes:
        """The root of the first `size` records, at most the head's. Raises AffidavitError (LOG_DAMAGED)."""
        return merkle.root(size, self._open.store.node)

    def node(self, level: int, index: int) -> bytes:
        """The hash of a complete subtree. Raises AffidavitError (LOG_DAMAGED) when it is missing."""
        return self._open.store.node(level, index)

    def leaf(self, index: int) -> bytes:
        """The bytes of a record under the head, not proved. One that was released (`is_released`) is fetched, and may
        take as long as the archive takes.

        Raises:
            AffidavitError: LOG_DAMAGED: it is missing. SERVICE_UNAVAILABLE or HASH_MISMATCH: it was released, and the
                archive does not answer, or has other bytes.
        """
        store, ledger = self._open.store, self._ledger
        leaf = store.leaf(index)
        if leaf is not None:
            return leaf
        segment = ledger.released(index)
        if segment is None:
            raise AffidavitError("LOG_DAMAGED", f"record {index} is missing from the store; restore it from a backup")
        leaf = self._elsewhere(segment, index)
        if merkle.leaf_hash(leaf) != store.node(0, index):
            raise AffidavitError("HASH_MISMATCH", f"the archive's record {index} is not what was signed")
        return leaf

    def is_released(self, index: int) -> bool:
        """Whether the record's leaf is in the archive alone."""
        return self._ledger.released(index) is not None

    @property
    def ledger(self) -> Ledger:
        """What is in the archive; only to be read."""
        return self._ledger

    def plan_segment(self, plan: Plan) -> None:
        """Keep the plan of a segment. Raises AffidavitError as `append`."""
        self._write_ledger(lambda: self._ledger.plan(plan))

    def note_archived(self, segment: Archived) -> None:
        """Remember a segment that was read back from the archive. Raises AffidavitError as `append`."""
        self._write_ledger(lambda: self._ledger.add(segment))

    def release(self, segment: Archived) -> None:
        """Let the leaves of a segment go; their hashes stay. Raises AffidavitError as `append`."""
        self._write_ledger(lambda: self._ledger.release(segment))

    def indices_of(self, tenant: str, request_id: str) -> list[int]:
        """Indices of one request's records under the head, in rising order."""
        size = self._head.tree.size
        return [index for index in self._open.store.find_request(tenant, request_id) if index < size]

    def close(self) -> None:
        try:
            self._open.store.close()
        finally:
            self._lock.release()

    def public_key_pem(self) -> bytes:
        return public_pem(self._open.key.public_key())

    def _take(self, opened: OpenLog) -> None:
        self._ledger = Ledger(opened.store)
        self._open = opened
        self._frontier = opened.frontier
        self._head = opened.head
        self._newest_time = opened.newest_time
        metrics.tree_leaves.set(opened.head.tree.size)
        if opened.unacknowledged:
            _log.warning("unacknowledged_records_kept", records=opened.unacknowledged)

    def _commit(self, grown: Grown) -> None:
        tree = grown.tree
        head = SignedHead.sign(replace(self._head.tree, size=tree.size, root=tree.root), self._open.key)
        try:
            self._open.store.commit(grown.records, grown.nodes, tree)
            self._open.head_file.write(head)
        except Exception as error:
            # Whatever it was: the store may be ahead of what is known here, and must not be written over.
            raise self._fail(_write_failure(error, "the log takes no more records")) from error
        self._frontier = grown.frontier
        self._head = head
        metrics.records.inc(len(grown.records))
        metrics.tree_leaves.set(tree.size)

    def _proven(self, grown: Grown | None, place: Place) -> Proven | InArchive:
        new = grown.record(place.index) if grown else None
        if new is None and self.is_released(place.index):  # the writer waits for no archive
            return InArchive(place.index)
        if grown is None or new is None:
            return replace(self.record(place.index), repeated=True)
        return Proven(place.index, new.leaf, new.side.salt, self._head, grown.prove(place.index), place.repeated)

    def reclaim(self, released: range) -> None:
        """Give the disk back what released leaves took. For any thread; the log must not be closed meanwhile.

        Raises:
            AffidavitError: as `append`; nothing but space is lost.
        """
        self._open.store.reclaim(released)

    def _write_ledger(self, write: Callable[[], object]) -> None:
        self._refuse_after_failure()
        try:
            write()
        except AffidavitError as error:
            raise self._fail(error) from error

    def _refuse_after_failure(self) -> None:
        if self._fenced:
            raise AffidavitError(self._fenced.reason, self._fenced.message)
        if self._failure:
            raise AffidavitError(self._failure.reason, self._failure.message)

    def _fail(self, error: AffidavitError) -> AffidavitError:
        # A new one, without the traceback, whose frames would keep hold of the store.
        self._failure = AffidavitError(error.reason, error.message)
        metrics.failures.labels(error.reason).inc()
        _log.error("appending_stopped", reason=error.reason, message=error.message)
        return error

    def _probe(self) -> None:
        """See that the disks take what opening may write, before the store that still answers reads is closed."""
        for folder in (self._folders.store.parent, self._folders.head):
            path = folder / "probe"
            try:
                _write_probe(path)
            except OSError as error:
                raise _write_failure(error, f"{folder} still takes no write") from error
            finally:
                path.unlink(missing_ok=True)


def _write_probe(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, 2 * MEMTABLE_BYTES)
        os.pwrite(descriptor, bytes(4096), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_failure(error: Exception, what: str) -> AffidavitError:
    if isinstance(error, AffidavitError):
        return error
    full = isinstance(error, OSError) and error.errno in _FULL
    return AffidavitError("STORAGE_FULL" if full else "LOG_UNAVAILABLE", f"{what}: {error}")
