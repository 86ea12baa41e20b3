"""The total check of a store: every leaf, every hash, every key, every side, against the tree that was signed.

A leaf and its hash contradict each other: which of the two is wrong? Two trees are grown, one from the leaves and one
from the stored hashes. The one that leads to the signed root is right.

A salt cannot be checked against anything in the log, that is what it is for: RocksDB's block checksums guard it, and a
side that is not there cannot be told from one that was erased.
"""

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.note import TreeHead
from affidavit.libs.evidence.record import parse_leaf
from affidavit.services.audit.archive.elsewhere import Elsewhere, nowhere
from affidavit.services.audit.archive.ledger import Ledger
from affidavit.services.audit.offline import Progress
from affidavit.services.audit.store import FORMAT, Store

BACKUP = (
    "stop the service, move audit/store away and restore a backup (affidavit audit restore FOLDER); where none is as new "
    "as the published tiles, build the store again from them (affidavit audit repair)"
)
ARCHIVE = "see that the archive answers, and what affidavit audit archive verify says of it"
_LISTED = 1000  # findings of one kind that are named one by one; the rest are counted
_PROGRESS_RECORDS = 1000


class Finding(NamedTuple):
    """Something that is wrong."""

    part: str  # log key, head, store, leaf, archive, hash, key, side, tile
    what: str
    restore: str


@dataclass
class Places:
    """Record indices with one kind of damage, as ranges, so that a lost table is one line and not a million."""

    ranges: list[range] = field(default_factory=list[range])
    unlisted: int = 0

    def add(self, index: int) -> None:
        if self.ranges and self.ranges[-1].stop == index:
            self.ranges[-1] = range(self.ranges[-1].start, index + 1)
        elif len(self.ranges) < _LISTED:
            self.ranges.append(range(index, index + 1))
        else:
            self.unlisted += 1

    def findings(self, part: str, what: str, restore: str) -> list[Finding]:
        found = [Finding(part, f"{records(span)}: {what}", restore) for span in self.ranges]
        if self.unlisted:
            found.append(Finding(part, f"{self.unlisted} more records: {what}", restore))
        return found


def records(span: range) -> str:
    """ "record 7" or "records 7 to 9"."""
    return f"record {span[0]}" if len(span) == 1 else f"records {span[0]} to {span[-1]}"


@dataclass
class _Tree:
    """One of the two trees: what it grows to, and the stored subtree hashes that contradict it."""

    frontier: Frontier = field(default_factory=Frontier)
    root: bytes = b""  # at the signed size
    wrong: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def copy(self) -> "_Tree":
        return _Tree(Frontier(self.frontier.size, self.frontier.peaks), self.root, list(self.wrong))


class StoreCheck:
    """One pass over an open store; `findings` when it is done."""

    def __init__(self, store: Store, head: TreeHead | None, progress: Progress, elsewhere: Elsewhere = nowhere) -> None:
        """Check against `head`; without one, only against the store's own tree. `elsewhere` reads released leaves."""
        self._elsewhere = elsewhere
        self._ledger = Ledger(store)
        self.released = 0  # records whose leaf was read from the archive
        self._store = store
        self._head = head
        self._progress = progress
        self._tree = store.tree()
        self._requests = array("q")  # of each record, to compare with its key
        self._kinds: dict[str, Places] = {}
        self.findings: list[Finding] = []
        self.erased = 0  # records without a side

    @property
    def size(self) -> int:
        """Records that the store says it has."""
        return self._tree.size

    def run(self) -> None:
        """Check all of it; damage is a finding, never an exception."""
        self._check_names()
        self._check_tree()
        self._check_keys()
        self._check_sides()
        self._check_beyond()

    def _check_names(self) -> None:
        if (version := self._store.format()) != FORMAT:
            self._find("store", f"its format is {version!r}, not {FORMAT!r}", BACKUP)
        origin = self._store.origin()
        if self._head and origin != self._head.origin:
            what = f"it is of log {origin}, the signed head of log {self._head.origin}"
            self._find("store", what, "restore the store and the head that belong together")
        if self._head and self.size < self._head.size:
            lost = records(range(self.size, self._head.size))
            self._find("store", f"it ends after {self.size} records: {lost} missing", BACKUP)

    def _check_tree(self) -> None:
        signed = self._head if self._head and self._head.size <= self.size else None
        size, root = (signed.size, signed.root) if signed else (self.size, self._tree.root)
        by_hash = by_leaf = _Tree()  # one tree until they differ
        unlike = Places()
        for index in range(self.size):
            leaf, stored = self._leaf_hash(index), self._node(0, index)
            if leaf is not None and stored is not None and leaf != stored:
                unlike.add(index)
                if by_hash is by_leaf:
                    by_leaf = by_hash.copy()
            self._grow(by_hash, stored or leaf)
            if by_leaf is not by_hash:
                self._grow(by_leaf, leaf or stored)
            if index + 1 == size:
                by_hash.root, by_leaf.root = by_hash.frontier.root(), by_leaf.frontier.root()
            self._step("records", index)
        if not size:
            by_hash.root = by_hash.frontier.root()
            by_leaf.root = by_hash.root
        self._judge(by_hash, by_leaf, unlike, root, size)

    def _judge(self, by_hash: _Tree, by_leaf: _Tree, unlike: Places, root: bytes, size: int) -> None:
        right = by_leaf if by_leaf.root == root != by_hash.root else by_hash
        if right.root == root and right is by_hash:
            what, part = "its bytes are not what was signed", "leaf"
        elif right.root == root:
            what, part = "its stored hash is not the leaf's, which is what was signed", "hash"
        else:
            self._find("store", f"its first {size} records do not lead to the signed root", BACKUP)
            what, part = "its bytes and its stored hash contradict each other", "leaf"
        for kind, places in self._kinds.items():
            kind_part, _, kind_what = kind.partition(": ")
            self.findings += places.findings(kind_part, kind_what, ARCHIVE if kind_part == "archive" else BACKUP)
        self._kinds.clear()
        self.findings += unlike.findings(part, what, BACKUP)
        for level, index in right.wrong[:_LISTED]:
            span = records(range(index << level, (index + 1) << level))
            self._find("hash", f"the subtree of {span} (level {level}) is missing or not that of its records", BACKUP)
        if len(right.wrong) > _LISTED:
            self._find("hash", f"{len(right.wrong) - _LISTED} more subtrees are not those of their records", BACKUP)
        if right.frontier.root() != self._tree.root:
            self._find("store", f"its own root of {self.size} records is not that of its records", BACKUP)

    def _grow(self, tree: _Tree, digest: bytes | None) -> None:
        for level, index, complete in tree.frontier.append(digest or bytes(merkle.HASH_BYTES)):
            if level and self._node(level, index) != complete:
                tree.wrong.append((level, index))

    def _leaf_hash(self, index: int) -> bytes | None:
        """The hash of the leaf's bytes, which are parsed; None when there are none."""
        self._requests.append(0)
        try:
            leaf = self._store.leaf(index)
        except AffidavitError as error:
            self._at(f"leaf: cannot be read ({error.message})", index)
            return None
        if leaf is None and (segment := self._ledger.released(index)):
            try:
                leaf = self._elsewhere(segment, index)
            except AffidavitError as error:
                self._at(f"archive: released, and not to be read ({error.reason})", index)
                return None
            self.released += 1
        if leaf is None:
            self._at("leaf: missing", index)
            return None
        try:
            parsed = parse_leaf(leaf)
        except ValueError as error:
            self._at(f"leaf: no record ({error})", index)
        else:
            self._requests[index] = hash((parsed.tenant, parsed.request_id))
            if parsed.index != index:
                self._find("leaf", f"record {index}: says that it is record {parsed.index}", BACKUP)
        return merkle.leaf_hash(leaf)

    def _node(self, level: int, index: int) -> bytes | None:
        try:
            return self._store.node(level, index)
        except AffidavitError:
            if not level:
                self._at("hash: missing or unreadable", index)
            return None

    def _check_keys(self) -> None:
        keyed = bytearray(self.size)
        count = 0
        try:
            for key, value in self._store.entries("key"):
                count += 1
                self._check_key(key, value, keyed)
                self._step("keys", min(count, self.size) - 1)
        except AffidavitError as error:
            self._find("key", f"after {count} keys: {error.message}", BACKUP)
        missing = Places()
        for index in range(self.size):
            if keyed[index] != 1:
                missing.add(index)
        what = "its idempotency key is missing or there twice: it could be recorded again"
        self.findings += missing.findings("key", what, BACKUP)

    def _check_key(self, key: bytes, value: bytes, keyed: bytearray) -> None:
        parts = key.decode(errors="replace").split("\0")
        index = int.from_bytes(value, "big")
        if len(value) != 8 or len(parts) != 3 or index >= self.size:
            self._find("key", f"{parts} names no record", BACKUP)
            return
        keyed[index] = min(keyed[index] + 1, 2)
        if not self._requests[index] and self._ledger.released(index):
            return  # its leaf could not be read, which was said
        if self._requests[index] != hash((parts[0], parts[1])):
            self._find("key", f"{parts} names record {index}, which is of another request", BACKUP)

    def _check_sides(self) -> None:
        for index in range(self.size):
            try:
                state = self._store.side_state(index)
            except AffidavitError as error:
                self._at(f"side: salt cannot be read ({error.message})", index)
            else:
                self.erased += state is None
                if state is False:
                    self._at("side: no salt and content digest of the known form", index)
            self._step("salts", index)
        for kind, places in self._kinds.items():
            part, _, what = kind.partition(": ")
            self.findings += places.findings(part, what, BACKUP)
        self._kinds.clear()

    def _check_beyond(self) -> None:
        for family in ("leaf", "side"):
            if self._store.has_from(family, self.size):
                self._find(family, f"there is one after the last record, {self.size - 1}", BACKUP)

    def _at(self, kind: str, index: int) -> None:
        self._kinds.setdefault(kind, Places()).add(index)

    def _find(self, part: str, what: str, restore: str) -> None:
        self.findings.append(Finding(part, what, restore))

    def _step(self, what: str, index: int) -> None:
        if (index + 1) % _PROGRESS_RECORDS == 0 or index + 1 == self.size:
            self._progress(what, index + 1, self.size)
