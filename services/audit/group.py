"""One group commit while it is being put together: which entry gets which place."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.record import leaf_bytes
from affidavit.services.audit.store import NewRecord, Side, Store, StoredTree


@dataclass(frozen=True)
class Entry:
    """A record that asks for a place; its draft was checked."""

    key: bytes
    side: Side
    draft: evidence_pb2.RecordDraft


@dataclass(frozen=True)
class Place:
    """Where an entry's record is: a new one, or the one that its key had already."""

    index: int
    repeated: bool


class Group:
    """Places entries after the store's last record. Nothing is written here."""

    def __init__(self, store: Store, frontier: Frontier, time: datetime) -> None:
        self._store = store
        self._time = time
        self._keys: dict[bytes, NewRecord] = {}
        # Every subtree that a new leaf's path may meet: the old peaks and what this group completes.
        self._nodes = dict(zip(merkle.peak_places(frontier.size), frontier.peaks, strict=True))
        self._first = frontier.size
        self.frontier = Frontier(frontier.size, frontier.peaks)
        self.records: list[NewRecord] = []
        self.completed: list[tuple[int, int, bytes]] = []

    def place(self, entry: Entry) -> Place:
        """Give `entry` the next place, or find the one that its key has.

        Raises:
            AffidavitError: IDEMPOTENCY_CONFLICT: the key has another content. INVALID_OPTION: the draft names a record
                that does not exist yet, or its leaf would be too long.
        """
        earlier = self._earlier(entry.key)
        if earlier is not None:
            index, side = earlier
            if side is None or side.content_digest != entry.side.content_digest:
                raise _conflict(entry, index, forgotten=side is None)
            return Place(index, repeated=True)
        index = self.frontier.size
        _check_references(entry.draft, index)
        try:
            leaf = leaf_bytes(entry.draft, index, self._time, entry.side.salt)
        except ValueError as error:
            raise AffidavitError("INVALID_OPTION", str(error), field="draft") from None
        record = NewRecord(index, leaf, entry.key, entry.side)
        self._keys[entry.key] = record
        self.records.append(record)
        completed = self.frontier.append(merkle.leaf_hash(leaf))
        self.completed += completed
        self._nodes.update(((level, number), digest) for level, number, digest in completed)
        return Place(index, repeated=False)

    def tree(self) -> StoredTree:
        return StoredTree(self.frontier.size, self.frontier.root())

    def record(self, index: int) -> NewRecord | None:
        """The record at `index` if it is one of this group's."""
        return self.records[index - self._first] if index >= self._first else None

    def prove(self, index: int) -> Sequence[bytes]:
        """The audit path of one of this group's records to the group's tree; reads no disk."""
        return merkle.prove_inclusion(index, self.frontier.size, lambda level, number: self._nodes[level, number])

    def _earlier(self, key: bytes) -> tuple[int, Side | None] | None:
        if new := self._keys.get(key):
            return new.index, new.side
        index = self._store.find(key)
        return None if index is None else (index, self._store.side(index))


def _check_references(draft: evidence_pb2.RecordDraft, index: int) -> None:
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


def _conflict(entry: Entry, index: int, *, forgotten: bool) -> AffidavitError:
    tenant, request_id, step = entry.key.decode().split("\0")
    what = f"request id {request_id!r}, step {step!r} of tenant {tenant!r} is record {index}"
    if forgotten:
        return AffidavitError("IDEMPOTENCY_CONFLICT", f"{what}, whose content was forgotten; use a new request id")
    return AffidavitError(
        "IDEMPOTENCY_CONFLICT", f"{what}, with another input, other options or another answer; use a new request id"
    )
