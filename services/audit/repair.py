"""`affidavit audit repair`: build the store again from the published tiles, where the store is gone.

Leaves come from the entry bundles, hashes are grown from them, both are kept only if they lead to the newest signed root
that is here. Nothing is invented: tiles that end before the signed head are refused.

What tiles do not have, because it is not public: salts (every record then counts as erased), and the step of an
idempotency key. A record gets the key (tenant, request id, U+0001 and its index), which no caller can send: it is found
by its request, and a retry from before the loss is recorded again.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.durablefile import sync_folder
from affidavit.libs.evidence.keys import PUBLIC_NAME, KeyFileError, load_public_key
from affidavit.libs.evidence.note import NoteError, TreeHead, Verifier, open_checkpoint, open_own_checkpoint
from affidavit.libs.evidence.record import parse_leaf
from affidavit.libs.evidence.tilepaths import CHECKPOINT
from affidavit.libs.evidence.tiles import TileError, TileReader, folder_tiles
from affidavit.services.audit.backup import batches, grow
from affidavit.services.audit.fsck import stopped
from affidavit.services.audit.head import HeadFile, SignedHead
from affidavit.services.audit.offline import Here, Progress, Run
from affidavit.services.audit.store import Store, StoredTree, create_store, record_key

STEP = "\x01{index}"


def repair(here: Here, progress: Progress) -> TreeHead:
    """Build the store again; the head that it now has.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: there is a store, or no tiles. LOG_DAMAGED: the tiles are not the log's, or end
            before its head. STORAGE_FULL.
    """
    store = here.folders.store
    if store.exists():
        message = f"{store} is there: move it away first, and keep it, salts and keys may still be in it"
        raise AffidavitError("LOG_UNAVAILABLE", message)
    if not (here.tiles / CHECKPOINT).exists():
        raise AffidavitError("LOG_UNAVAILABLE", f"there is no {here.tiles / CHECKPOINT} to repair from")
    building = store.with_name(store.name + ".repaired")
    with stopped(here.folders.lock):
        shutil.rmtree(building, ignore_errors=True)
        building.parent.mkdir(parents=True, exist_ok=True)
        try:
            head = _build(here, building, progress)
        except BaseException as error:
            shutil.rmtree(building, ignore_errors=True)
            if isinstance(error, NoteError | TileError | KeyFileError):
                message = f"the tiles do not repair this log: {error}; restore a backup"
                raise AffidavitError("LOG_DAMAGED", message) from None
            raise
        here.folders.head.mkdir(parents=True, exist_ok=True)
        HeadFile(here.folders.head).replace(head.note)
        building.rename(store)
        sync_folder(store.parent)
    return head.tree


def _build(here: Here, building: Path, progress: Progress) -> SignedHead:
    reader = TileReader(folder_tiles(here.tiles))
    head = _newest(here, reader)
    create_store(building, head.tree.origin)
    copy = Store(building)
    try:
        leaves = ((index.to_bytes(8, "big"), leaf) for index, leaf in enumerate(reader.leaves(head.tree)))
        grow(copy, _keyed(leaves, copy), head.tree, progress)
        copy.settle(StoredTree(head.tree.size, head.tree.root))
    finally:
        copy.close()
    return head


def _newest(here: Here, reader: TileReader) -> SignedHead:
    """The tiles' checkpoint, if it continues the signed head that is here, or there is none."""
    key = load_public_key(here.folders.keys / PUBLIC_NAME)
    note = (here.tiles / CHECKPOINT).read_bytes()
    published = open_own_checkpoint(note, key)
    own = HeadFile(here.folders.head).read()
    if own is None:
        return SignedHead(published, note)
    signed = open_checkpoint(own, [Verifier(published.origin, key)])
    if signed.size > published.size:
        lost = f"records {published.size} to {signed.size - 1}"
        raise TileError(
            f"they end after {published.size} records, the signed head covers {signed.size}: {lost} are not there"
        )
    if merkle.root(signed.size, reader.node(published.size)) != signed.root:
        raise TileError(f"their first {signed.size} records are not those that the head signed")
    return SignedHead(published, note)


def _keyed(leaves: Iterator[tuple[bytes, bytes]], copy: Store) -> Iterator[tuple[bytes, bytes]]:
    """Give the leaves on, each once its key is put."""
    for batch in batches(leaves):
        keys: list[tuple[bytes, bytes]] = []
        for place, leaf in batch:
            try:
                record = parse_leaf(leaf)
            except ValueError as error:
                raise TileError(f"record {int.from_bytes(place, 'big')} cannot be read: {error}") from None
            keys.append((record_key(record.tenant, record.request_id, STEP.format(index=record.index)), place))
        copy.put("key", keys)
        yield from batch


def main(argv: Sequence[str], run: Run) -> int:
    """The command, with the arguments after its name; its exit code."""

    def work(here: Here, progress: Progress) -> int:
        had_head = HeadFile(here.folders.head).read() is not None
        head = repair(here, progress)
        lines = [f"log {head.origin}: {head.size} records from {here.tiles}, under the signed root"]
        if not had_head:
            lines.append(
                "no signed head was here, the tiles' is taken: later records may be lost; ask a witness or a monitor"
            )
        lines.append(
            "not in tiles, so not here: salts (all count as erased) and idempotency keys (a retry is recorded again)"
        )
        sys.stdout.write("\n".join(lines) + "\n")
        return 0

    return run(argv, work)
