"""`affidavit audit backup DEST [--with-keys]`: copy a log, running or stopped, into a new folder.

The signed head is read first, the store opened after it, so that it has at least what the head signed; the records that
the head covers are copied, and none after them. The copy's subtree hashes are grown from its leaves: it is kept only if
they lead to the signed root. Erased salts are not in it, and what is erased later has to be erased from it too.

The copy has the layout of a data folder: `affidavit audit fsck --home DEST` checks it.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.durablefile import create_file, sync_folder
from affidavit.libs.evidence.keys import PRIVATE_NAME, KeyFileError
from affidavit.libs.evidence.logkeys import CHECKPOINT_SUFFIX, PUBLIC_SUFFIX, RETIRED, LogKeys
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.note import NoteError, TreeHead
from affidavit.services.audit.archive.elsewhere import Elsewhere, nowhere
from affidavit.services.audit.archive.ledger import Ledger
from affidavit.services.audit.head import HeadFile
from affidavit.services.audit.offline import Here, Progress, Run
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.store import Store, StoredTree, create_store

SIDE = "side"
_BATCH = 512
_OPENINGS = 10  # a flush or compaction of the running log may take a file away while it is being opened


def back_up(
    source: LogFolders, destination: Path, progress: Progress, *, with_keys: bool, elsewhere: Elsewhere = nowhere
) -> TreeHead:
    """Copy the log of `source` to `destination`, which appears whole or not at all. Leaves that were released are read
    from `elsewhere`: a backup has all of them.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: there is something at `destination`, or no log. LOG_DAMAGED: the log is not
            what its head signed. STORAGE_FULL.
    """
    if destination.exists():
        raise AffidavitError("LOG_UNAVAILABLE", f"{destination} is there already; a backup needs a new folder")
    building = destination.with_name(destination.name + ".new")
    shutil.rmtree(building, ignore_errors=True)
    if with_keys and not source.key.own:
        message = f"the log's private key is not in its folder but in {source.key.where(source.keys)}"
        raise AffidavitError("LOG_UNAVAILABLE", f"{message}: keep a copy of it there, and back up without --with-keys")
    head, note = _signed(source)
    try:
        _build(source, LogFolders.below(building), head, note, progress, elsewhere, with_keys=with_keys)
        building.rename(destination)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    sync_folder(destination.parent)
    return head


def _build(
    source: LogFolders,
    copy: LogFolders,
    head: TreeHead,
    note: bytes,
    progress: Progress,
    elsewhere: Elsewhere,
    *,
    with_keys: bool,
) -> None:
    for folder in (copy.store.parent, copy.head, copy.keys):
        folder.mkdir(parents=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="affidavit-backup-") as beside:
        store = open_beside(source.store, Path(beside), head.size)
        try:
            _copy_store(store, copy.store, head, progress, elsewhere)
        finally:
            store.close()
    HeadFile(copy.head).replace(note)
    side = source.store.parent / SIDE  # cosigned checkpoints and timestamps; a file being replaced ends in .new
    if side.is_dir():
        shutil.copytree(side, copy.store.parent / SIDE, ignore=shutil.ignore_patterns("*.new"))
    for old, new in ((source.keys / RETIRED, copy.keys / RETIRED), (source.keys, copy.keys)):
        for path in kept_files(old):
            new.mkdir(mode=0o700, exist_ok=True)
            create_file(new / path.name, path.read_bytes(), 0o644)
    if LogKeys.read(copy.keys).signer_of(note) != LogKeys.read(copy.keys).current:
        raise AffidavitError("LOG_UNAVAILABLE", "the log's key was rotated while it was being copied; back up again")
    if with_keys:
        create_file(copy.keys / PRIVATE_NAME, (source.keys / PRIVATE_NAME).read_bytes(), 0o600)
    for folder in (copy.store.parent, copy.store.parent.parent):
        sync_folder(folder)


def _signed(source: LogFolders) -> tuple[TreeHead, bytes]:
    note = HeadFile(source.head).read()
    if note is None:
        raise AffidavitError("LOG_UNAVAILABLE", f"there is no signed head in {source.head}, and no log to back up")
    try:
        return LogKeys.read(source.keys).open(note), note
    except (NoteError, KeyFileError) as error:
        raise AffidavitError("LOG_DAMAGED", f"the signed head in {source.head} is not this log's: {error}") from None


def kept_files(folder: Path) -> list[Path]:
    """What is public in a keys folder, or in its folder of retired keys: keys, and checkpoints of rotations."""
    return sorted(path for path in folder.glob("*") if path.suffix in (PUBLIC_SUFFIX, CHECKPOINT_SUFFIX))


def open_beside(path: Path, beside: Path, size: int) -> Store:
    """The store of a log that may run: as it was when it was opened, with the `size` records that it had before.

    A flush between RocksDB's reading of the tables' list and of the write-ahead log takes the latter away: what is then
    open is whole, and lacks the newest records without a word. It is opened again.

    Raises:
        AffidavitError: as `Store`. A store that lacks records every time is given back: the caller says which.
    """
    for _ in range(_OPENINGS - 1):
        try:
            store = Store(path, look=True, beside=beside)
        except AffidavitError:
            continue
        if store.tree().size >= size:
            return store
        store.close()
    return Store(path, look=True, beside=beside)


def _copy_store(store: Store, path: Path, head: TreeHead, progress: Progress, elsewhere: Elsewhere) -> None:
    create_store(path, head.origin)
    copy = Store(path)
    try:
        copied = grow(copy, _leaves(store, head.size, elsewhere), head, progress)
        keys = sum(_copy_family(store, copy, "key", head.size))
        sum(_copy_family(store, copy, "side", head.size))
        if (copied, keys) != (head.size, head.size):
            message = f"the store has {copied} records and {keys} keys of the {head.size} that are signed"
            raise AffidavitError("LOG_DAMAGED", f"{message}; affidavit audit fsck says which are missing")
        copy.settle(StoredTree(head.size, head.root))
    finally:
        copy.close()


def grow(copy: Store, leaves: Iterator[tuple[bytes, bytes]], head: TreeHead, progress: Progress) -> int:
    """Put leaves, by index from 0, and the subtree hashes that they lead to; how many there were before a gap.

    Raises:
        AffidavitError: LOG_DAMAGED: they are as many as `head` has, and lead to another root.
    """
    frontier = Frontier()
    for entries in batches(leaves):
        nodes: list[tuple[bytes, bytes]] = []
        for key, leaf in entries:
            if int.from_bytes(key, "big") != frontier.size:
                return frontier.size
            for level, index, digest in frontier.append(merkle.leaf_hash(leaf)):
                nodes.append((level.to_bytes(1, "big") + index.to_bytes(8, "big"), digest))
        copy.put("leaf", entries)
        copy.put("node", nodes)
        progress("records", frontier.size, head.size)
    if frontier.size == head.size and frontier.root() != head.root:
        message = f"the first {head.size} records are not those that the head signed"
        raise AffidavitError("LOG_DAMAGED", f"{message}; affidavit audit fsck says which")
    return frontier.size


def _copy_family(store: Store, copy: Store, family: str, size: int) -> Iterator[int]:
    for entries in batches(_covered(store, family, size)):
        copy.put(family, entries)
        yield len(entries)


def _leaves(store: Store, size: int, elsewhere: Elsewhere) -> Iterator[tuple[bytes, bytes]]:
    """The first `size` leaves, by index; those of released segments from the archive."""
    ledger, index = Ledger(store), 0
    for key, leaf in _covered(store, "leaf", size):
        while index < int.from_bytes(key, "big") and (segment := ledger.released(index)):
            yield index.to_bytes(8, "big"), elsewhere(segment, index)
            index += 1
        yield key, leaf
        index = int.from_bytes(key, "big") + 1


def _covered(store: Store, family: str, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Entries of the first `size` records."""
    for key, value in store.entries(family):
        if int.from_bytes(value if family == "key" else key, "big") < size:
            yield key, value


def batches(entries: Iterator[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """So many entries at a time as one write takes."""
    while batch := list(islice(entries, _BATCH)):
        yield batch


def main(argv: Sequence[str], run: Run) -> int:
    """The command, with the arguments after its name; its exit code."""
    arguments = [argument for argument in argv if argument != "--with-keys"]
    if not arguments or arguments[0].startswith("-"):
        sys.stderr.write("backup: say where to, a folder that is not there yet\n")
        return 2
    with_keys = "--with-keys" in argv

    def work(here: Here, progress: Progress) -> int:
        destination = Path(arguments[0]).expanduser().absolute()
        head = back_up(here.folders, destination, progress, with_keys=with_keys, elsewhere=here.elsewhere)
        key = "with the log's private key: keep it as one" if with_keys else "without the log's private key"
        sys.stdout.write(f"log {head.origin}: {head.size} records in {destination}, {key}\n")
        return 0

    return run(arguments[1:], work)
