"""The total check of the published log: its checkpoint, every hash tile, every entry bundle.

With a whole store, each file is compared with it, and all that are wrong are named. Without one, the tiles are read as
anyone would read them, up to the first fault; whole tiles then say what the store has lost.
"""

from collections.abc import Sequence
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.merkle import HASH_BYTES
from affidavit.libs.evidence.note import NoteError, TreeHead, Verifier
from affidavit.libs.evidence.tilepaths import (
    CHECKPOINT,
    TILE_HEIGHT,
    TILE_WIDTH,
    entries_path,
    tile_levels,
    tile_path,
    tile_widths,
)
from affidavit.libs.evidence.tiles import TileError, TileReader, bundle_bytes, folder_tiles
from affidavit.services.audit.archive.elsewhere import Elsewhere, leaf_reader, nowhere
from affidavit.services.audit.offline import Progress
from affidavit.services.audit.store import Store
from affidavit.services.audit.storecheck import BACKUP, Finding

AGAIN = "the scrub of the running service writes it again from the store; or delete it: the next start does"


class TileCheck:
    """One pass over a folder of tiles; `findings` when it is done. A folder without a checkpoint is no finding."""

    def __init__(self, folder: Path, verifiers: Sequence[Verifier], progress: Progress) -> None:
        self._folder = folder
        self._verifiers = verifiers
        self._progress = progress
        self._reader = TileReader(folder_tiles(folder))
        self.findings: list[Finding] = []

    def head(self) -> TreeHead | None:
        """What the published checkpoint signs; None when there is none, or it is a finding."""
        if not (self._folder / CHECKPOINT).exists():
            return None
        try:
            return self._reader.head(self._verifiers)
        except (NoteError, TileError, OSError) as error:
            self._find(CHECKPOINT, f"not this log's checkpoint: {error}")
            return None

    def against(self, store: Store, head: TreeHead, elsewhere: Elsewhere = nowhere) -> None:
        """Compare every file that `head` covers with a whole store, whose released leaves are `elsewhere`."""
        leaf = leaf_reader(store, elsewhere)
        size = store.tree().size
        if head.size > size:
            what = f"the published checkpoint covers {head.size} records, the store has {size}: the log was set back"
            self.findings.append(Finding("tile", what, "restore the newest store and head"))
            return
        if merkle.root(head.size, store.node) != head.root:
            what = f"the published checkpoint has another root for {head.size} records than the store"
            self.findings.append(Finding("tile", f"{what}: another past", "restore the log that was published"))
            return
        for level in tile_levels(head.size):
            for number, width in enumerate(tile_widths(level, head.size)):
                first = number * TILE_WIDTH
                hashes = b"".join(store.node(TILE_HEIGHT * level, first + n) for n in range(width))
                self._compare(tile_path(level, number, width), tile_path(level, number), hashes)
                if level == 0:
                    bundle = bundle_bytes([leaf(first + n) or b"" for n in range(width)])
                    self._compare(entries_path(number, width), entries_path(number), bundle)
                    self._progress("tiles", first + width, head.size)

    def alone(self, head: TreeHead) -> int:
        """Read all leaves of `head` without the store; how many were whole before the first fault."""
        whole = 0
        try:
            for whole, _ in enumerate(self._reader.leaves(head), 1):
                if whole % TILE_WIDTH == 0 or whole == head.size:
                    self._progress("tiles", whole, head.size)
        except (TileError, OSError) as error:
            self.findings.append(Finding("tile", str(error), "restore audit/tiles from a backup or a mirror"))
        return whole

    def _compare(self, path: str, full: str, expected: bytes) -> None:
        """A file against what it must hold; a full tile may stand in for a partial one and begins with it."""
        found = next((name for name in (path, full) if (self._folder / name).is_file()), None)
        if found is None:
            self.findings.append(Finding("tile", f"{path} is missing", "the next start writes it again from the store"))
            return
        try:
            data = (self._folder / found).read_bytes()
        except OSError as error:
            self._find(found, f"cannot be read: {error.strerror}")
            return
        if data == expected or (found != path and data.startswith(expected)):
            return
        if path.startswith("tile/entries/"):
            self._find(found, "its records are not those of the log")
            return
        wrong = next((at for at in range(0, len(expected), HASH_BYTES) if data[at:][:32] != expected[at:][:32]), None)
        place = "another length" if wrong is None else f"hash {wrong // HASH_BYTES} is not the log's"
        self._find(found, place)

    def _find(self, path: str, what: str) -> None:
        self.findings.append(Finding("tile", f"{self._folder / path}: {what}", AGAIN))


def check_tiles(
    folder: Path,
    verifiers: Sequence[Verifier],
    whole_store: Store | None,
    progress: Progress,
    elsewhere: Elsewhere = nowhere,
) -> tuple[list[Finding], int]:
    """Findings, and how many leading records were found whole in the tiles alone (0 when the store is whole)."""
    check = TileCheck(folder, verifiers, progress)
    head = check.head()
    whole = 0
    if head is not None and whole_store is None:
        whole = check.alone(head)
    elif head is not None and whole_store is not None:
        try:
            check.against(whole_store, head, elsewhere)
        except AffidavitError as error:
            check.findings.append(Finding("store", error.message, BACKUP))
    return check.findings, whole
