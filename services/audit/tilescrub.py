"""The published tiles against the store: one that was changed or deleted on the disk is written again, and counted.

The store is the truth, but only where it is proved to be: a tile is replaced only when the store's records of that range
lead to the signed root. Otherwise the tile may be the last good copy, and is left as it is.
"""

from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.durablefile import replace_file
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.tilepaths import TILE_HEIGHT, TILE_WIDTH, entries_path, tile_levels, tile_path, tile_widths
from affidavit.libs.evidence.tiles import bundle_bytes
from affidavit.libs.telemetry import get_logger
from affidavit.services.audit import metrics
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.publishing import Published

_log = get_logger("scrub")


class TileScrub:
    """Checks what `published` has written; not for the thread that publishes."""

    def __init__(self, log: EvidenceLog, published: Published) -> None:
        self._log = log
        self._published = published
        self.rewritten = 0

    def full(self, number: int) -> None:
        """The full tile and entry bundle `number` of the leaves, and the full tiles above that end with it."""
        if (number + 1) * TILE_WIDTH > self._published.size:
            return
        level, above = 0, number
        self._check(level, above, TILE_WIDTH)
        while (above + 1) % TILE_WIDTH == 0:
            level, above = level + 1, above // TILE_WIDTH
            self._check(level, above, TILE_WIDTH)

    def edge(self) -> None:
        """The partial tiles of what is published, unless a newer head is being published meanwhile."""
        size = self._published.size
        for level in tile_levels(size):
            widths = tile_widths(level, size)
            if widths and widths[-1] < TILE_WIDTH and self._published.size == size:
                self._check(level, len(widths) - 1, widths[-1])

    def _check(self, level: int, number: int, width: int) -> None:
        first = number * TILE_WIDTH
        try:
            leaves = [] if level or self._log.is_released(first) else [self._log.leaf(first + n) for n in range(width)]
            hashes = [merkle.leaf_hash(leaf) for leaf in leaves]
            hashes = hashes or [self._log.node(TILE_HEIGHT * level, first + n) for n in range(width)]
            if not self._proved(TILE_HEIGHT * level, first, hashes):
                return
        except AffidavitError:
            return
        self._compare(self._published.folder / tile_path(level, number, width), b"".join(hashes))
        if leaves:
            self._compare(self._published.folder / entries_path(number, width), bundle_bytes(leaves))

    def _proved(self, low: int, first: int, hashes: list[bytes]) -> bool:
        """Whether these complete subtrees of level `low`, from number `first`, lead to the signed root: from each of
        their own peaks up to one of the tree's, whose peaks have the root.

        Raises:
            AffidavitError: the store lacks a hash.
        """
        head = self._log.head.tree
        if merkle.root(head.size, self._log.node) != head.root:
            return False
        tops = set(merkle.peak_places(head.size))
        own = Frontier()
        for digest in hashes:
            own.append(digest)
        inside = {
            (low + level, (first >> level) + index): peak
            for (level, index), peak in zip(merkle.peak_places(own.size), own.peaks, strict=True)
        }
        for (level, index), peak in inside.items():
            place, digest = (level, index), peak
            while place not in tops:
                level_, index_ = place
                beside = inside.get((level_, index_ ^ 1)) or self._log.node(level_, index_ ^ 1)
                digest = merkle.node_hash(beside, digest) if index_ & 1 else merkle.node_hash(digest, beside)
                place = (level_ + 1, index_ >> 1)
            if digest != self._log.node(*place):
                return False
        return True

    def _compare(self, path: Path, expected: bytes) -> None:
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            found = None
        if found == expected:
            return
        what = "missing" if found is None else "changed"
        _log.error("tile_rewritten", path=str(path), was=what)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, expected)
        self.rewritten += 1
        metrics.scrub_tiles.inc()
