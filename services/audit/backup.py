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
from affidavit.libs.evidence.keys import PRIVATE_NAME, PUBLIC_NAME, KeyFileError, load_public_key
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.note import NoteError, TreeHead, open_own_checkpoint
from affidavit.services.audit.head import HeadFile
from affidavit.services.audit.offline import Here, Progress, Run
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.store import Store, StoredTree, create_store

SIDE = "side"
_BATCH = 512
_OPENINGS = 3  # a compaction of the running log may take a file away while it is being opened


def back_up(source: LogFolders, destination: Path, progress: Progress, *, with_keys: bool) -> TreeHead:
    """Copy the log of `source` to `destination`, which appears whole or not at all.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: there is something at `destination`, or no log. LOG_DAMAGED: the log is not
            what its head signed. STORAGE_FULL.
    """
    if destination.exists():
        raise AffidavitError("LOG_UNAVAILABLE", f"{destination} is there already; a backup needs a new folder")
    building = destination.with_name(destination.name + ".new")
    shutil.rmtree(building, ignore_errors=True)
    head, note = _signed(source)
    try:
        _build(source, LogFolders.below(building), head, note, progress, with_keys=with_keys)
        building.rename(destination)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    sync_folder(destination.parent)
    return head


def _build(
    source: LogFolders, copy: LogFolders, head: TreeHead, note: bytes, progress: Progress, *, with_keys: bool
) -> None:
    for folder in (copy.store.parent, copy.head, copy.keys):
        folder.mkdir(parents=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="affidavit-backup-") as beside:
        store = _open(source.store, Path(beside))
        try:
            _copy_store(store, copy.store, head, progress)
        finally:
            store.close()
    HeadFile(copy.head).replace(note)
    side = source.store.parent / SIDE  # cosigned checkpoints and timestamps; a file being replaced ends in .new
    if side.is_dir():
        shutil.copytree(side, copy.store.parent / SIDE, ignore=shutil.ignore_patterns("*.new"))
    for path in sorted(source.keys.glob("*.pub")):
        create_file(copy.keys / path.name, path.read_bytes(), 0o644)
    if with_keys:
        create_file(copy.keys / PRIVATE_NAME, (source.keys / PRIVATE_NAME).read_bytes(), 0o600)
    for folder in (copy.store.parent, copy.store.parent.parent):
        sync_folder(folder)


def _signed(source: LogFolders) -> tuple[TreeHead, bytes]:
    note = HeadFile(source.head).read()
    if note is None:
        raise AffidavitError("LOG_UNAVAILABLE", f"there is no signed head in {source.head}, and no log to back up")
    try:
        return open_own_checkpoint(note, load_public_key(source.keys / PUBLIC_NAME)), note
    except (NoteError, KeyFileError) as error:
        raise AffidavitError("LOG_DAMAGED", f"the signed head in {source.head} is not this log's: {error}") from None


def _open(path: Path, beside: Path) -> Store:
    for _ in range(_OPENINGS - 1):
        try:
            return Store(path, look=True, beside=beside)
        except AffidavitError:
            continue
    return Store(path, look=True, beside=beside)


def _copy_store(store: Store, path: Path, head: TreeHead, progress: Progress) -> None:
    create_store(path, head.origin)
    copy = Store(path)
    try:
        copied = grow(copy, _covered(store, "leaf", head.size), head, progress)
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
        head = back_up(here.folders, destination, progress, with_keys=with_keys)
        key = "with the log's private key: keep it as one" if with_keys else "without the log's private key"
        sys.stdout.write(f"log {head.origin}: {head.size} records in {destination}, {key}\n")
        return 0

    return run(arguments[1:], work)
