"""The log's store: one RocksDB, five column families, one write batch a commit.

| family  | key                                    | value                                                    |
| ------- | -------------------------------------- | -------------------------------------------------------- |
| default | `v`, `origin`, `tree`, `canary`        | format version; log name; size (8) and root (32); a count |
| leaf    | index (8, big-endian)                  | the leaf's bytes                                         |
| node    | level (1), index (8)                   | hash (32) of the complete subtree, level 0 the leaf's    |
| key     | tenant NUL request id NUL step         | index (8)                                                |
| side    | index (8)                              | version (1), salt (32), content digest (32); erasable    |

Every complete subtree is kept, two hashes a record: any root or proof of any size is O(log n) reads, and opening
hashes nothing again.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.commitment import SALT_BYTES
from affidavit.libs.evidence.durablefile import sync_folder
from affidavit.libs.evidence.merkle import EMPTY_ROOT, HASH_BYTES
from affidavit.services.audit.database import Database

FORMAT = b"1"
_NAMES = ""  # the default family
_FAMILIES = ("leaf", "node", "key", "side")
_SIDE_VERSION = b"\x01"


class StoredTree(NamedTuple):
    """The tree as the last whole commit left it."""

    size: int
    root: bytes


class Side(NamedTuple):
    """What is kept beside a record and may be erased."""

    salt: bytes
    content_digest: bytes


class NewRecord(NamedTuple):
    """What is stored of a record beside its tree."""

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
        self._database = Database(path, _FAMILIES, look=look, beside=beside)

    def origin(self) -> str | None:
        value = self._database.get(_NAMES, b"origin")
        return None if value is None else value.decode()

    def format(self) -> bytes | None:
        return self._database.get(_NAMES, b"v")

    def tree(self) -> StoredTree:
        value = self._database.get(_NAMES, b"tree")
        if value is None:
            return StoredTree(0, EMPTY_ROOT)
        return StoredTree(int.from_bytes(value[:8], "big"), value[8:])

    def leaf(self, index: int) -> bytes | None:
        return self._database.get("leaf", _index(index))

    def node(self, level: int, index: int) -> bytes:
        """The hash of a complete subtree.

        Raises:
            AffidavitError: LOG_DAMAGED when it is not there.
        """
        value = self._database.get("node", _node(level, index))
        if value is None or len(value) != HASH_BYTES:
            first, count = index << level, 1 << level
            message = f"the log's store has no hash for records {first} to {first + count - 1}"
            raise AffidavitError("LOG_DAMAGED", message)
        return value

    def find(self, key: bytes) -> int | None:
        """The index of the record with this key."""
        return self.find_all([key])[0]

    def find_all(self, keys: Sequence[bytes]) -> list[int | None]:
        """The same for many, in one look-up."""
        found = self._database.get_all("key", keys)
        return [None if value is None else int.from_bytes(value, "big") for value in found]

    def find_request(self, tenant: str, request_id: str) -> list[int]:
        """Indices of all records of one request, in rising order."""
        prefix = record_key(tenant, request_id, "")
        found: list[int] = []
        for key, value in self._database.entries("key", prefix):
            if not key.startswith(prefix):
                break
            found.append(int.from_bytes(value, "big"))
        return sorted(found)

    def side(self, index: int) -> Side | None:
        """Salt and content digest; None once they were erased."""
        value = self._database.get("side", _index(index))
        if value is None or value[:1] != _SIDE_VERSION:
            return None
        return Side(value[1 : 1 + SALT_BYTES], value[1 + SALT_BYTES :])

    def side_state(self, index: int) -> bool | None:
        """Whether the side has its form; None when there is none."""
        value = self._database.get("side", _index(index))
        whole = 1 + SALT_BYTES + HASH_BYTES
        return None if value is None else value[:1] == _SIDE_VERSION and len(value) == whole

    def entries(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """All of a family, in the order of its keys.

        Raises:
            AffidavitError: it cannot be read to its end.
        """
        return self._database.entries(family)

    def has_from(self, family: str, index: int) -> bool:
        """Whether a family that is keyed by index has anything at `index` or after it."""
        return any(True for _ in self._database.entries(family, _index(index)))

    def name(self, origin: str) -> None:
        """Write the format version and the log's name, durably. Raises as `commit` does."""
        batch = self._database.batch()
        batch.put(_NAMES, b"v", FORMAT)
        batch.put(_NAMES, b"origin", origin.encode())
        self._database.commit(batch)

    def commit(self, records: Sequence[NewRecord], nodes: Sequence[tuple[bytes, bytes]], tree: StoredTree) -> None:
        """Make a tree's newest records, the subtrees that they completed (as entries of their family) and the tree's new
        size and root durable, all or none.

        Raises:
            AffidavitError: STORAGE_FULL or LOG_UNAVAILABLE: nothing may be acknowledged, and this store must not be
                written again before it was opened anew (a second fsync would succeed without the lost pages).
        """
        places = [_index(index) for index in range(tree.size - len(records), tree.size)]
        placed = list(zip(places, records, strict=True))
        batch = self._database.batch()
        batch.put_all("leaf", [(place, record.leaf) for place, record in placed])
        batch.put_all("key", [(record.key, place) for place, record in placed])
        batch.put_all("side", [(place, b"".join((_SIDE_VERSION, *record.side))) for place, record in placed])
        batch.put_all("node", nodes)
        batch.put(_NAMES, b"tree", _index(tree.size) + tree.root)
        self._database.commit(batch)

    def put(self, family: str, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Put entries as they stand in another store; nothing is durable before `settle`.

        Raises:
            AffidavitError: STORAGE_FULL or LOG_UNAVAILABLE.
        """
        batch = self._database.batch()
        batch.put_all(family, entries)
        self._database.put(batch)

    def settle(self, tree: StoredTree) -> None:
        """Make all that was `put` durable, and then the tree over it. Raises as `commit` does."""
        self._database.flush()
        self.commit([], [], tree)

    def touch(self, count: int) -> None:
        """A small synced write that is no record: shows that the disk still takes one. Raises as `commit` does."""
        batch = self._database.batch()
        batch.put(_NAMES, b"canary", _index(count))
        self._database.commit(batch)

    def erase(self, indices: list[int]) -> None:
        """Erase salts and content digests of records, also from the files: flushed, so that the write-ahead log that
        had them goes, and compacted, so that no table keeps them under a deletion mark.

        Raises:
            AffidavitError: as `commit` does; some may be gone and some not.
        """
        batch = self._database.batch()
        for index in indices:
            batch.delete("side", _index(index))
        self._database.commit(batch)
        self._database.flush()  # atomic over all families: no write-ahead log is needed for what it covers
        self._database.compact("side")

    def close(self) -> None:
        """Close all of it; a second time is nothing.

        Raises:
            AffidavitError: the last flush failed. It is closed even so, and what was synced is in its write-ahead log.
        """
        self._database.close()


def _index(index: int) -> bytes:
    return index.to_bytes(8, "big")


def _node(level: int, index: int) -> bytes:
    return level.to_bytes(1, "big") + index.to_bytes(8, "big")
