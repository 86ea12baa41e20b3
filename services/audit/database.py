"""One RocksDB, opened and written the log's way: what is written is synced or it is an error, and errors have words."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

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

MEMTABLE_BYTES = 64 << 20
_CACHE_BYTES = 64 << 20


class Database:
    """An open database. One thread writes; any thread reads what was committed. The family "" is RocksDB's default."""

    def __init__(self, path: Path, families: Sequence[str], *, look: bool, beside: Path | None) -> None:
        """Open it; with `look`, only for reading, and nothing on the disk is touched; with `beside`, a folder for
        RocksDB's own notes, likewise while another process writes it: what was committed when this was opened.

        Raises:
            AffidavitError: LOG_DAMAGED or LOG_UNAVAILABLE.
        """
        self._path = path
        self._closed = False
        access = AccessType.read_only(False) if look else AccessType.read_write()
        if beside is not None:
            access = AccessType.secondary(str(beside))
        try:
            whole = Rdict(
                str(path), _options(), column_families={name: _options() for name in families}, access_type=access
            )
            self._whole = whole
            self._families = {"": whole} | {name: whole.get_column_family(name) for name in families}
            # Kept: a handle looked up for each write, and held by a failure's traceback, would keep the database locked.
            self._handles: dict[str, ColumnFamily] = {
                name: whole.get_column_family_handle(name or "default") for name in self._families
            }
        except Exception as error:  # rocksdict raises bare Exception, with RocksDB's words
            raise _failure(error, f"the log's store in {path} does not open") from error

    def get(self, family: str, key: bytes) -> bytes | None:
        """Raises AffidavitError (LOG_DAMAGED, LOG_UNAVAILABLE)."""
        try:
            return cast("bytes | None", self._families[family].get(key))
        except Exception as error:
            raise self._unreadable(error) from error

    def get_all(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys`, in one look-up. Raises as `get`."""
        try:
            return cast("list[bytes | None]", self._families[family].get(list(keys)))
        except Exception as error:
            raise self._unreadable(error) from error

    def entries(self, family: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """What a family has from the key `start` on, in the order of its keys. Raises as `get`."""
        entries = self._families[family].iter()
        entries.seek(start)
        while entries.valid():
            yield cast("bytes", entries.key()), cast("bytes", entries.value())
            entries.next()
        try:
            entries.status()  # a damaged block ends the iteration like an end
        except Exception as error:
            raise self._unreadable(error) from error

    def batch(self) -> "Batch":
        """An empty batch of changes."""
        return Batch(self._handles)

    def commit(self, batch: "Batch") -> None:
        """Make a batch durable, all of it or nothing.

        Raises:
            AffidavitError: STORAGE_FULL or LOG_UNAVAILABLE: this database must not be written again before it was opened
                anew (a second fsync would succeed without the lost pages).
        """
        # Written first, then synced: rocksdict's `write` holds the interpreter lock, also while it syncs; `flush_wal`
        # lets it go, so that the next group gathers during the fsync.
        try:
            self._whole.write(batch.changes, WriteOptions())
            self._whole.flush_wal(sync=True)
        except Exception as error:
            raise self._unwritable(error) from error

    def put(self, batch: "Batch") -> None:
        """Write a batch that is not durable before `flush`. Raises as `commit`."""
        try:
            self._whole.write(batch.changes, WriteOptions())
        except Exception as error:
            raise self._unwritable(error) from error

    def flush(self) -> None:
        """Bring all that was written into tables, durably, all families at the same commit. Raises as `commit`."""
        try:
            self._whole.flush()
        except Exception as error:
            raise self._unwritable(error) from error

    def compact(self, family: str) -> None:
        """Write a family's tables anew, without what was deleted. Raises as `commit`."""
        options = CompactOptions()
        # A table at the bottom is skipped by default when there is nothing above it to merge.
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        try:
            self._families[family].compact_range(None, None, options)
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
        for part in (*(family for name, family in self._families.items() if name), self._whole):
            try:
                part.close()  # each holds the database open, and its lock
            except Exception as error:
                failures.append(error)
        if failures:
            raise _failure(failures[0], f"the log's store in {self._path} closed with an error") from failures[0]

    def _unreadable(self, error: Exception) -> AffidavitError:
        return _failure(error, f"the log's store in {self._path} cannot be read")

    def _unwritable(self, error: Exception) -> AffidavitError:
        return _failure(error, f"the log's store in {self._path} takes no more records")


class Batch:
    """Changes that are written together."""

    def __init__(self, handles: dict[str, ColumnFamily]) -> None:
        self.changes = WriteBatch(raw_mode=True)
        self._handles = handles

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self.changes.put(key, value, self._handles[family])

    def put_all(self, family: str, entries: Sequence[tuple[bytes, bytes]]) -> None:
        handle, put = self._handles[family], self.changes.put
        for key, value in entries:
            put(key, value, handle)

    def delete(self, family: str, key: bytes) -> None:
        self.changes.delete(key, self._handles[family])


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
