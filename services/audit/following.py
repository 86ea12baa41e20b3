"""Following a published log: every record is proved to continue what is here before it is written.

What a standby has is the same store as the log's own, one signed head behind it at most by what is not published yet.
Records come in parts; the tree that each part leads to is proved consistent with the source's signed checkpoint first,
so that a source that forks, goes back or is set back an epoch adds nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.epoch import epoch_of
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.note import NoteError, TreeHead
from affidavit.libs.evidence.tilepaths import CHECKPOINT, TILE_WIDTH
from affidavit.libs.evidence.tiles import Fetch, TileError, TileReader, folder_tiles, url_tiles
from affidavit.services.audit.head import HeadFile
from affidavit.services.audit.keyed import keyed
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.store import Store, StoredTree, create_store

_PART_TILES = 64  # 16,384 records are proved and written at a time


class Forked(Exception):
    """The source is not what was followed: another past, or a server that was replaced. Nothing of it was taken."""


@dataclass(frozen=True)
class Source:
    """A published log to follow."""

    where: str
    fetch: Fetch

    @classmethod
    def at(cls, where: str) -> "Source":
        """A folder, or what a static file server has below an http(s) URL."""
        if where.startswith(("http://", "https://")):
            return cls(where, url_tiles(where))
        return cls(where, folder_tiles(Path(where).expanduser().absolute()))

    def checkpoint(self, keys: LogKeys) -> tuple[TreeHead, bytes]:
        """Its newest checkpoint, signed by a key of the log. Raises OSError, NoteError."""
        note = self.fetch(CHECKPOINT)
        head = keys.open(note)
        epoch_of(head)
        return head, note


class Follower:
    """The standby's copy of a log. One process has it open, under the log's lock."""

    def __init__(self, folders: LogFolders, keys: LogKeys) -> None:
        self._folders = folders
        self.keys = keys
        self._head_file = HeadFile(folders.head)
        note = self._head_file.read()
        self.head: TreeHead | None = None if note is None else keys.open(note)
        self._store = Store(folders.store) if folders.store.exists() else None

    def follow(self, source: Source) -> int:
        """Take what `source` has published since; how many records came.

        Raises:
            Forked: see there. OSError, TileError: it cannot be read, or not wholly: ask again. AffidavitError: this
                disk refuses.
        """
        try:
            head, note = source.checkpoint(self.keys)
        except NoteError as error:
            raise Forked(f"{source.where}: not a checkpoint of the log that is followed: {error}") from None
        if self.head is not None:
            self._compare(source, self.head, head)
            if head.size < self.head.size or head == self.head:
                return 0
        store = self._opened(head.origin)
        before = store.tree().size
        for part in self._parts(TileReader(source.fetch), store, head):
            self._write(store, *part)
        self._folders.head.mkdir(parents=True, exist_ok=True)
        self._head_file.replace(note)
        self.head = head
        return head.size - before

    def root(self, size: int) -> bytes:
        """The root of the first `size` records that are here."""
        return merkle.root(size, self._opened("").node)

    def proof(self, first: int, second: int) -> list[bytes]:
        """That the first `second` records that are here continue the first `first`."""
        return merkle.prove_consistency(first, second, self._opened("").node)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _compare(self, source: Source, mine: TreeHead, head: TreeHead) -> None:
        if head.origin != mine.origin:
            raise Forked(f"{source.where} is of log {head.origin}, this standby follows {mine.origin}")
        if epoch_of(head) < epoch_of(mine):
            what = f"{source.where} is of epoch {epoch_of(head)}, epoch {epoch_of(mine)} was seen"
            raise Forked(f"{what}: a server that was replaced has come back")
        if head.size <= mine.size and self.root(head.size) != head.root:
            raise Forked(
                f"{source.where} has another tree of {head.size} records than was followed: keep both, as proof"
            )

    def _parts(
        self, reader: TileReader, store: Store, head: TreeHead
    ) -> Iterator[tuple[list[tuple[int, bytes]], list[tuple[int, int, bytes]], StoredTree]]:
        """What is new, in parts that are each proved to lead to `head`."""
        begin = store.tree().size
        frontier = Frontier.read(begin, store.node)
        node = reader.node(head.size)
        while begin < head.size:
            end = min(head.size, (begin // TILE_WIDTH + _PART_TILES) * TILE_WIDTH)
            leaves = list(_leaves(reader, begin, end, head.size))
            nodes = [grown for _, leaf in leaves for grown in frontier.append(merkle.leaf_hash(leaf))]
            root = frontier.root()
            try:
                proof = merkle.prove_consistency(end, head.size, node)
                merkle.verify_consistency(end, head.size, root, head.root, proof)
            except merkle.ProofError as error:
                what = (
                    f"records {begin} to {end - 1} do not lead from what was followed to the signed root of {head.size}"
                )
                raise Forked(f"{what}: {error}") from None
            yield leaves, nodes, StoredTree(end, root)
            begin = end

    def _write(
        self, store: Store, leaves: list[tuple[int, bytes]], nodes: list[tuple[int, int, bytes]], tree: StoredTree
    ) -> None:
        store.put("leaf", list(keyed(iter([(index.to_bytes(8, "big"), leaf) for index, leaf in leaves]), store)))
        store.put("node", [(bytes([level]) + index.to_bytes(8, "big"), digest) for level, index, digest in nodes])
        store.settle(tree)

    def _opened(self, origin: str) -> Store:
        if self._store is None:
            self._folders.store.parent.mkdir(parents=True, exist_ok=True)
            create_store(self._folders.store, origin)
            self._store = Store(self._folders.store)
        return self._store


def _leaves(reader: TileReader, begin: int, end: int, size: int) -> Iterator[tuple[int, bytes]]:
    for number in range(begin // TILE_WIDTH, (end + TILE_WIDTH - 1) // TILE_WIDTH):
        first = number * TILE_WIDTH
        for index, leaf in enumerate(reader.bundle(number, min(TILE_WIDTH, size - first)), first):
            if begin <= index < end:
                yield index, leaf


def refused(error: Forked | TileError | NoteError) -> AffidavitError:
    """As an error that ends a command."""
    return AffidavitError("LOG_DAMAGED", str(error))
