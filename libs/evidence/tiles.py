"""Reading a published log: C2SP `tlog-tiles`, from a folder, or from any server of static files.

    tiles = TileReader(folder_tiles(path))
    head = tiles.head([verifier])                        # the checkpoint, its signature verified
    for index, leaf in enumerate(tiles.leaves(head)):    # every leaf, once all of them lead to head.root
        ...

Nothing that is read is believed: `leaves` gives out nothing unless it leads to the signed root.
"""

import hashlib
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.merkle import HASH_BYTES, Frontier
from affidavit.libs.evidence.note import TreeHead, Verifier, open_checkpoint
from affidavit.libs.evidence.tilepaths import (
    CHECKPOINT,
    TILE_HEIGHT,
    TILE_WIDTH,
    entries_path,
    tile_path,
    tile_widths,
)

# The bytes of a path; raises FileNotFoundError when there is nothing, OSError when it cannot be read.
Fetch = Callable[[str], bytes]
MAX_FILE_BYTES = TILE_WIDTH * (2 + 65_535)  # the largest entry bundle there can be
_FETCH_TIMEOUT_S = 30


class TileError(ValueError):
    """A published log is not what its checkpoint signed, or lacks something."""


def folder_tiles(folder: Path) -> Fetch:
    """Read a log that stands in `folder`."""
    return lambda path: (folder / path).read_bytes()


def url_tiles(url: str) -> Fetch:
    """Read a log below `url` (http or https).

    Raises:
        ValueError: another scheme.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is neither http nor https")

    def fetch(path: str) -> bytes:
        try:
            with urllib.request.urlopen(f"{url.rstrip('/')}/{path}", timeout=_FETCH_TIMEOUT_S) as answer:
                return answer.read(MAX_FILE_BYTES + 1)
        except urllib.error.HTTPError as error:
            if error.code in (404, 410):
                raise FileNotFoundError(f"{url} has no {path}") from None
            raise

    return fetch


def bundle_bytes(leaves: Sequence[bytes]) -> bytes:
    """An entry bundle.

    Raises:
        ValueError: a leaf of more than 65,535 bytes.
    """
    try:
        return b"".join(struct.pack(">H", len(leaf)) + leaf for leaf in leaves)
    except struct.error:
        raise ValueError("an entry of a bundle has at most 65535 bytes") from None


def parse_bundle(data: bytes) -> list[bytes]:
    """The leaves of an entry bundle. Raises TileError when it ends in the middle of one."""
    leaves: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            raise TileError(f"the bundle ends in the middle of entry {len(leaves)}")
        leaves.append(data[at + 2 : end])
        at = end
    return leaves


class TileReader:
    """A published log, read and verified."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def head(self, verifiers: Sequence[Verifier], name: str = CHECKPOINT) -> TreeHead:
        """The tree head in the checkpoint file `name`, signed by a known key.

        Raises:
            TileError: there is no checkpoint. NoteError: see `open_checkpoint`.
        """
        return open_checkpoint(self._read(name), verifiers)

    def node(self, size: int) -> merkle.NodeReader:
        """Complete subtrees of the tree of `size` leaves, from its hash tiles: for `merkle.root` and the proofs.

        The reader raises TileError when a tile is missing or has another length. Tiles are kept while it lives.
        """
        tiles: dict[tuple[int, int], bytes] = {}

        def tile(level: int, number: int) -> bytes:
            if (level, number) not in tiles:
                width = min(TILE_WIDTH, (size >> TILE_HEIGHT * level) - number * TILE_WIDTH)
                tiles[level, number] = self._tile(level, number, width)
            return tiles[level, number]

        def read(level: int, index: int) -> bytes:
            above, inside = divmod(level, TILE_HEIGHT)
            first = index << inside  # of 2^inside neighbours in one tile, whose root is asked for
            number, place = divmod(first, TILE_WIDTH)
            data = tile(above, number)[place * HASH_BYTES : (place + (1 << inside)) * HASH_BYTES]
            if len(data) != HASH_BYTES << inside:
                raise TileError(f"a tree of {size} leaves has no complete subtree {index} of level {level}")
            return _fold(_split(data))

        return read

    def bundle(self, number: int, width: int = TILE_WIDTH) -> list[bytes]:
        """The leaves of one entry bundle, not verified. Raises TileError."""
        path = entries_path(number, width)
        data = self._read(path, entries_path(number))
        try:
            leaves = parse_bundle(data)
        except TileError as error:
            raise TileError(f"{path}: {error}") from None
        if len(leaves) not in (width, TILE_WIDTH):
            raise TileError(f"{path} has {len(leaves)} entries, not {width}")
        return leaves[:width]

    def leaves(self, head: TreeHead) -> Iterator[bytes]:
        """Every leaf of `head`, in order. All hash tiles are checked against the signed root before the first leaf, and
        each bundle's leaves against its tile before they are given out. Memory: 64 bytes per 256 records.

        Raises:
            TileError: the tiles or the entries are not what the head signed; the message names what is at fault.
        """
        tiles = self._check_tiles(head)
        for number, width in enumerate(tile_widths(0, head.size)):
            leaves = self.bundle(number, width)
            hashes = [merkle.leaf_hash(leaf) for leaf in leaves]
            if hashlib.sha256(b"".join(hashes)).digest() != tiles[number]:
                signed = self._tile(0, number, width)
                wrong = next((i for i in range(width) if hashes[i] != signed[i * HASH_BYTES :][:HASH_BYTES]), 0)
                index = number * TILE_WIDTH + wrong
                raise TileError(f"{entries_path(number, width)}: record {index} is not what was signed")
            yield from leaves

    def _check_tiles(self, head: TreeHead) -> list[bytes]:
        """Read every hash tile of `head`; the SHA-256 of each of the leaves' tiles."""
        frontier = Frontier()
        seen: list[bytes] = []
        above: list[bytes] = []  # what the next level's tiles must hold
        for number, width in enumerate(tile_widths(0, head.size)):
            tile = self._tile(0, number, width)
            hashes = _split(tile)
            for digest in hashes:
                frontier.append(digest)
            seen.append(hashlib.sha256(tile).digest())
            if width == TILE_WIDTH:
                above.append(_fold(hashes))
        if frontier.root() != head.root:
            raise TileError(f"the hash tiles do not lead to the root that is signed for {head.size} records")
        level = 1
        while above:
            below, above = above, []
            for number, width in enumerate(tile_widths(level, head.size)):
                hashes = below[number * TILE_WIDTH : number * TILE_WIDTH + width]
                if self._tile(level, number, width) != b"".join(hashes):
                    raise TileError(f"{tile_path(level, number, width)} is not what was signed")
                if width == TILE_WIDTH:
                    above.append(_fold(hashes))
            level += 1
        return seen

    def _tile(self, level: int, number: int, width: int) -> bytes:
        path = tile_path(level, number, width)
        data = self._read(path, tile_path(level, number))
        if len(data) not in (width * HASH_BYTES, TILE_WIDTH * HASH_BYTES):
            raise TileError(f"{path} has {len(data)} bytes, not {width * HASH_BYTES}")
        return data[: width * HASH_BYTES]

    def _read(self, path: str, full: str = "") -> bytes:
        """A file; `full` may stand in for a partial one, which a log may delete once its tile is full."""
        try:
            return self._fetch(path)
        except FileNotFoundError:
            if not full or full == path:
                raise TileError(f"{path} is missing") from None
        try:
            return self._fetch(full)
        except FileNotFoundError:
            raise TileError(f"{path} is missing") from None


def _split(tile: bytes) -> list[bytes]:
    return [tile[at : at + HASH_BYTES] for at in range(0, len(tile), HASH_BYTES)]


def _fold(hashes: Sequence[bytes]) -> bytes:
    """The root of 2^n neighbouring complete subtrees."""
    while len(hashes) > 1:
        hashes = [merkle.node_hash(*pair) for pair in zip(hashes[::2], hashes[1::2], strict=True)]
    return hashes[0]
