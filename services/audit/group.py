"""One group commit while it is being put together: which entry gets which place."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from affidavit import _native
from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.draft import MAX_LEAF_BYTES
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.record import time_text
from affidavit.services.audit.entry import Entry
from affidavit.services.audit.store import NewRecord, Side, Store, StoredTree


@dataclass(frozen=True)
class Place:
    """Where an entry's record is: a new one, or the one that its key had already."""

    index: int
    repeated: bool


class Grown:
    """A group's records with their leaves, and the tree over them; nothing is written yet."""

    def __init__(self, first: int, growth: _native.Growth, placed: Sequence[tuple[bytes, Side]]) -> None:
        self._first = first
        self._growth = growth
        self.records = [NewRecord(leaf, *beside) for leaf, beside in zip(growth.leaves, placed, strict=True)]
        self.nodes = growth.nodes
        self.tree = StoredTree(growth.size, growth.root)
        self.frontier = Frontier(growth.size, growth.peaks)

    def record(self, index: int) -> NewRecord | None:
        """The record at `index` if it is one of this group's."""
        return self.records[index - self._first] if index >= self._first else None

    def prove(self, index: int) -> Sequence[bytes]:
        """The audit path of one of this group's records to the group's tree; reads no disk."""
        return self._growth.path(index)


class Group:
    """Places entries after the store's last record."""

    def __init__(self, store: Store, frontier: Frontier, time: datetime) -> None:
        self._store = store
        self._frontier = frontier
        self._time = time_text(time)
        self._new: list[Entry] = []
        self._placed: list[tuple[bytes, Side]] = []
        self._keys: dict[bytes, int] = {}  # of what is new, to its number in the group

    def place(self, entries: Sequence[Entry]) -> list[Place | AffidavitError]:
        """Give each entry the next place, or find the one that its key has, or say why it has none.

        IDEMPOTENCY_CONFLICT: the key has another content. INVALID_OPTION: the draft names a record that does not exist
        yet, or its leaf would be too long.
        """
        keys = [entry.key for entry in entries]
        places: list[Place | AffidavitError] = []
        for entry, key, index in zip(entries, keys, self._store.find_all(keys), strict=True):
            try:
                places.append(self._place(entry, key, index))
            except AffidavitError as error:
                places.append(error)
        return places

    def grow(self) -> Grown | None:
        """Make the leaves of what is new and grow the tree by them; None when there is nothing new."""
        if not self._new:
            return None
        first = self._frontier.size
        growth = _native.Growth(first, self._frontier.peaks, self._new, self._time)
        return Grown(first, growth, self._placed)

    def _place(self, entry: Entry, key: bytes, index: int | None) -> Place:
        number = self._keys.get(key)
        if number is not None:
            index, side = self._frontier.size + number, self._placed[number][1]
        else:
            side = None if index is None else self._store.side(index)
        if index is not None:
            if side is None or side.content_digest != entry.content_digest:
                raise _conflict(key, index, forgotten=side is None)
            return Place(index, repeated=True)
        index = self._frontier.size + len(self._new)
        newest = entry.newest_reference
        if newest is not None and newest >= index:
            _refuse_reference(audit_pb2.AppendItem.FromString(entry.data).draft, index)
        if entry.longest_leaf > MAX_LEAF_BYTES:
            size = len(entry.leaf(index, self._time))
            if size > MAX_LEAF_BYTES:
                message = f"the record has {size} bytes; a leaf has at most {MAX_LEAF_BYTES}"
                raise AffidavitError("INVALID_OPTION", message, field="draft")
        self._keys[key] = len(self._new)
        self._new.append(entry)
        self._placed.append((key, Side(entry.salt, entry.content_digest)))
        return Place(index, repeated=False)


def _refuse_reference(draft: evidence_pb2.RecordDraft, index: int) -> None:
    named = {
        "parent_index": draft.parent_index if draft.HasField("parent_index") else None,
        "reused_from": draft.reused_from if draft.HasField("reused_from") else None,
        "environment_index": draft.environment_index if draft.HasField("environment_index") else None,
        "children": draft.children[-1].last if draft.children else None,
    }
    for name, reference in named.items():
        if reference is not None and reference >= index:
            message = f"draft.{name} is {reference}; the log's last record is {index - 1}"
            raise AffidavitError("INVALID_OPTION", message, field=f"draft.{name}")


def _conflict(key: bytes, index: int, *, forgotten: bool) -> AffidavitError:
    tenant, request_id, step = key.decode().split("\0")
    what = f"request id {request_id!r}, step {step!r} of tenant {tenant!r} is record {index}"
    if forgotten:
        return AffidavitError("IDEMPOTENCY_CONFLICT", f"{what}, whose content was forgotten; use a new request id")
    return AffidavitError(
        "IDEMPOTENCY_CONFLICT", f"{what}, with another input, other options or another answer; use a new request id"
    )
