"""The log's store: one RocksDB, five column families, one write batch a commit.

| family  | key                                    | value                                                    |
| ------- | -------------------------------------- | -------------------------------------------------------- |
| default | `v`, `origin`, `tree`, `canary`        | format version; log name; size (8) and root (32); a count |
| default | `archive/…`                            | what is in the archive (`archive/ledger.py`)             |
| leaf    | index (8, big-endian)                  | the leaf's bytes                                         |
| node    | level (1), index (8)                   | hash (32) of the complete subtree, level 0 the leaf's    |
| key     | tenant NUL request id NUL step         | index (8)                                                |
| side    | index (8)                              | version (1), salt (32), content digest (32); erasable    |

Every complete subtree is kept, two hashes a record: any root or proof of any size is O(log n) reads, and opening
hashes nothing again.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    ColumnFamily,
    CompactOptions,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.commitment import SALT_BYTES
from affidavit.libs.evidence.durablefile import sync_folder
from affidavit.libs.evidence.merkle import EMPTY_ROOT, HASH_BYTES

FORMAT = b"1"
_FAMILIES = ("leaf", "node", "key", "side")
_SIDE_VERSION = b"\x01"
MEMTABLE_BYTES = 64 << 20
_CACHE_BYTES = 64 << 20


class StoredTree(NamedTuple):
    """The tree as the last whole commit left it."""

    size: int
    root: bytes


class Side(NamedTuple):
    """What is kept beside a record and may be erased."""

    salt: bytes
    content_digest: bytes


@dataclass(frozen=True)
class NewRecord:
    """A record with its place."""

    index: int
    leaf: bytes
    key: bytes
    side: Side


def record_key(tenant: str, request_id: str, step: str) -> bytes:
    """The idempotency key's bytes; no part contains a NUL (`check_name`). Records of one request are neighbours."""
    return b"\0".join(part.encode() for part in (tenant, request_id, step))


def create_store(path: Path, origin: str) -> None:
    """Make an empty store for the log `origin`: built beside its place, then renamed, so that it is whole or not there.

    Raises:
        AffidavitError: STORAGE_FULL or LOG_UNAVAILABLE.
    """
    building = path.with_name(path.name + ".new")
    shutil.rmtree(building, ignore_errors=True)
    store = Store(building)
    store.name(origin)
    store.close()
    building.rename(path)
    sync_folder(path.parent)


class Store:
    """An open store. One thread writes; any thread reads what was committed."""

    def __init__(self, path: Path, *, look: bool = False, beside: Path | None = None) -> None:
        """Open it; with `look`, only for reading, and no record on the disk is touched; with `beside`, a folder for
        RocksDB's own notes, likewise while another process writes it: what was committed when this was opened.

        Recovery is point-in-time: it ends at the last whole commit, whether the tail is torn, zeroes or garbage, and
        says nothing of what is gone. Whoever opens must compare with the signed head.

        Raises:
            AffidavitError: LOG_DAMAGED or LOG_UNAVAILABLE.
        """
        self._path = path
        self._closed = False
        access = AccessType.read_only(False) if look else AccessType.read_write()
        if beside is not None:
            access = AccessType.secondary(str(beside))
        families = {name: _options() for name in _FAMILIES}
        try:
            self._db = Rdict(str(path), _options(), column_families=families, access_type=access)
            self._families = {name: self._db.get_column_family(name) for name in _FAMILIES}
            self._handles: dict[str, ColumnFamily] = {
                name: self._db.get_column_family_handle(name) for name in _FAMILIES
            }
        except Exception as error:  # rocksdict raises bare Exception, with RocksDB's words
            raise _failure(error, f"the log's store in {path} does not open") from error

    def origin(self) -> str | None:
        value = self._get(self._db, b"origin")
        return None if value is None else value.decode()

    def format(self) -> bytes | None:
        return self._get(self._db, b"v")

    def tree(self) -> StoredTree:
        value = self._get(self._db, b"tree")
        if value is None:
            return StoredTree(0, EMPTY_ROOT)
        return StoredTree(int.from_bytes(value[:8], "big"), value[8:])

    def leaf(self, index: int) -> bytes | None:
        return self._get(self._families["leaf"], _index(index))

    def node(self, level: int, index: int) -> bytes:
        """The hash of a complete subtree.

        Raises:
            AffidavitError: LOG_DAMAGED when it is not there.
        """
        value = self._get(self._families["node"], _node(level, index))
        if value is None or len(value) != HASH_BYTES:
            first, count = index << level, 1 << level
            message = f"the log's store has no hash for records {first} to {first + count - 1}"
            raise AffidavitError("LOG_DAMAGED", message)
        return value

    def find(self, key: bytes) -> int | None:
        """The index of the record with this key."""
        value = self._get(self._families["key"], key)
        return None if value is None else int.from_bytes(value, "big")

    def find_request(self, tenant: str, request_id: str) -> list[int]:
        """Indices of all records of one request, in rising order."""
        prefix = record_key(tenant, request_id, "")
        found: list[int] = []
        try:
            for key, value in self._families["key"].items(from_key=prefix):
                if not cast("bytes", key).startswith(prefix):
                    break
                found.append(int.from_bytes(cast("bytes", value), "big"))
        except Exception as error:
            raise _failure(error, f"the log's store in {self._path} cannot be read") from error
        return sorted(found)

    def side(self, index: int) -> Side | None:
        """Salt and content digest; None once they were erased."""
        value = self._get(self._families["side"], _index(index))
        if value is None or value[:1] != _SIDE_VERSION:
            return None
        return Side(value[1 : 1 + SALT_BYTES], value[1 + SALT_BYTES :])

    def side_state(self, index: int) -> bool | None:
        """Whether the side has its form; None when there is none."""
        value = self._get(self._families["side"], _index(index))
        whole = 1 + SALT_BYTES + HASH_BYTES
        return None if value is None else value[:1] == _SIDE_VERSION and len(value) == whole

    def entries(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """All of a family, in the order of its keys.

        Raises:
            AffidavitError: it cannot be read to its end.
        """
        entries = self._families[family].iter()
        entries.seek_to_first()
        while entries.valid():
            yield cast("bytes", entries.key()), cast("bytes", entries.value())
            entries.next()
        try:
            entries.status()  # a damaged block ends the iteration like an end
        except Exception as error:
            raise _failure(error, f"the log's store in {self._path} cannot be read") from error

    def notes(self, prefix: bytes) -> list[bytes]:
        """Values of the default family whose keys begin with `prefix`, in the order of the keys."""
        found: list[bytes] = []
        try:
            for key, value in self._db.items(from_key=prefix):
                if not cast("bytes", key).startswith(prefix):
                    break
                found.append(cast("bytes", value))
        except Exception as error:
            raise _failure(error, f"the log's store in {self._path} cannot be read") from error
        return found

    def keep_notes(self, notes: Mapping[bytes, bytes | None], released: range = range(0)) -> None:
        """Put (or, where None, delete) notes, and delete the leaves of `released`; durably, all or none. Raises as
        `commit` does."""
        batch = WriteBatch(raw_mode=True)
        for key, value in notes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        for index in released:
            batch.delete(_index(index), self._handles["leaf"])
        self._commit(batch)

    def has_from(self, family: str, index: int) -> bool:
        """Whether a family that is keyed by index has anything at `index` or after it."""
        entries = self._families[family].iter()
        entries.seek(_index(index))
        return entries.valid()

    def name(self, origin: str) -> None:
        """Write the format version and the log's name, durably. Raises as `commit` does."""
        batch = WriteBatch(raw_mode=True)
        batch.put(b"v", FORMAT)
        batch.put(b"origin", origin.encode())
        self._commit(batch)

    def commit(self, records: list[NewRecord], nodes: list[tuple[int, int, bytes]], tree: StoredTree) -> None:
        """Make records, the subtrees that they completed and the tree's new size and root durable, all or none.

        Raises:
            AffidavitError: STORAGE_FULL or LOG_UNAVAILABLE: nothing may be acknowledged, and this store must not be
                written again before it was opened anew (a second fsync would succeed without the lost pages).
        """
        batch = WriteBatch(raw_mode=True)
        handles = self._handles  # not one by one: a handle kept by a failure's traceback would keep the database locked
        for record in records:
            place = _index(record.index)
            batch.put(place, record.leaf, handles["leaf"])
            batch.put(record.key, place, handles["key"])
            batch.put(place, _SIDE_VERSION + record.side.salt + record.side.content_digest, handles["side"])
        for level, index, digest in nodes:
            batch.put(_node(level, index), digest, handles["node"])
        batch.put(b"tree", _index(tree.size) + tree.root)
        self._commit(batch)

    def put(self, family: str, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Put entries as they stand in another store; nothing is durable before `settle`.

        Raises:
            AffidavitError: STORAGE_FULL or LOG_UNAVAILABLE.
        """
        batch = WriteBatch(raw_mode=True)
        for key, value in entries:
            batch.put(key, value, self._handles[family])
        try:
            self._db.write(batch, WriteOptions())
        except Exception as error:
            raise _failure(error, f"the store {self._path} takes no more records") from error

    def settle(self, tree: StoredTree) -> None:
        """Make all that was `put` durable, and then the tree over it. Raises as `commit` does."""
        try:
            self._db.flush()
        except Exception as error:
            raise _failure(error, f"the store {self._path} takes no more records") from error
        self.commit([], [], tree)

    def touch(self, count: int) -> None:
        """A small synced write that is no record: shows that the disk still takes one. Raises as `commit` does."""
        batch = WriteBatch(raw_mode=True)
        batch.put(b"canary", _index(count))
        self._commit(batch)

    def erase(self, indices: list[int]) -> None:
        """Erase salts and content digests of records, also from the files: flushed, so that the write-ahead log that
        had them goes, and compacted, so that no table keeps them under a deletion mark.

        Raises:
            AffidavitError: as `commit` does; some may be gone and some not.
        """
        batch = WriteBatch(raw_mode=True)
        for index in indices:
            batch.delete(_index(index), self._handles["side"])
        self._commit(batch)
        try:
            self._db.flush()  # atomic over all families: no write-ahead log is needed for what it covers
            side = self._families["side"]
            options = CompactOptions()
            # A table at the bottom is skipped by default when there is nothing above it to merge.
            options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
            side.compact_range(None, None, options)
        except Exception as error:
            raise _failure(error, f"the log's store in {self._path} could not be compacted") from error

    def close(self) -> None:
        """Close all of it; a second time is nothing.

        Raises:
            AffidavitError: the last flush failed. It is closed even so, and what was synced is in its write-ahead log.
        """
        if self._closed:
            return
        self._closed = True
        self._handles.clear()
        failures: list[Exception] = []
        for part in (*self._families.values(), self._db):  # each holds the database open, and its lock
            try:
                part.close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise _failure(failures[0], f"the log's store in {self._path} closed with an error") from failures[0]

    def _commit(self, batch: WriteBatch) -> None:
        # Written first, then synced: rocksdict's `write` holds the interpreter lock, also while it syncs; `flush_wal`
        # lets it go, so that the next group gathers during the fsync.
        try:
            self._db.write(batch, WriteOptions())
            self._db.flush_wal(sync=True)
        except Exception as error:
            raise _failure(error, f"the log's store in {self._path} takes no more records") from error

    def _get(self, family: Rdict, key: bytes) -> bytes | None:
        try:
            return cast("bytes | None", family.get(key))
        except Exception as error:
            raise _failure(error, f"the log's store in {self._path} cannot be read") from error


def _failure(error: Exception, what: str) -> AffidavitError:
    words = str(error)
    if any(sign in words for sign in ("No space left", "File too large", "Disk quota", "NoSpace")):
        return AffidavitError("STORAGE_FULL", f"{what}: {words}; free some space, the log then opens again by itself")
    damaged = words.startswith("Corruption") or "No such file" in words or "does not exist" in words
    if damaged:
        return AffidavitError("LOG_DAMAGED", f"{what}: {words}; restore it from a backup")
    return AffidavitError("LOG_UNAVAILABLE", f"{what}: {words}")


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_atomic_flush(True)  # all families end at the same commit, with or without the write-ahead log
    options.set_paranoid_checks(True)
    options.set_db_write_buffer_size(MEMTABLE_BYTES)
    options.set_keep_log_file_num(4)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)  # most keys are new: their lookup should cost no read
    table.set_block_cache(_cache)
    options.set_block_based_table_factory(table)
    return options


_cache = Cache(_CACHE_BYTES)


def _index(index: int) -> bytes:
    return index.to_bytes(8, "big")


def _node(level: int, index: int) -> bytes:
    return level.to_bytes(1, "big") + index.to_bytes(8, "big")
