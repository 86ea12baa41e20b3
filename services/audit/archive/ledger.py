"""What the store remembers of the archive: one note a segment that was read back whole, and the plan of the one under
way.

A released segment's note and the deletion of its leaves are one write: a leaf that is missing without such a note is
damage. The ledger can be lost (a backup that is put back, a repaired store): segments are then found in the archive
again and checked anew.
"""

import json
from bisect import bisect_right
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from affidavit.libs.evidence.record import parse_time, time_text
from affidavit.services.audit.store import Store

_SEGMENT, _PLAN = b"archive/segment/", b"archive/plan"
_VERSION = 1


@dataclass(frozen=True)
class Archived:
    """A segment that is in the archive, as it was read back. `manifest` and `entries` are SHA-256."""

    first: int
    last: int
    manifest: bytes
    entries: bytes
    newest_time: datetime
    retain_until: datetime
    released: bool = False

    @property
    def indices(self) -> range:
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Plan:
    """A segment that is being written: with it the same bytes are made again after a crash."""

    first: int
    last: int
    checkpoint: bytes
    retain_until: datetime


class Ledger:
    """Notes of one store. `plan`, `add` and `release` belong to the log's writer thread; reading is for any."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._segments = tuple(_archived(value) for value in store.notes(_SEGMENT))  # by rising first: keys are sorted

    @property
    def segments(self) -> tuple[Archived, ...]:
        """All of them, in order and without a gap."""
        return self._segments

    @property
    def size(self) -> int:
        """So many of the log's first records are in the archive."""
        return self._segments[-1].last + 1 if self._segments else 0

    def planned(self) -> Plan | None:
        """The segment that was begun and is not known to be whole."""
        notes = self._store.notes(_PLAN)
        return _plan(notes[0]) if notes else None

    def released(self, index: int) -> Archived | None:
        """The segment that record `index` is in, if its leaves were released."""
        place = bisect_right(self._segments, index, key=lambda segment: segment.first) - 1
        if place < 0:
            return None
        segment = self._segments[place]
        return segment if segment.released and index <= segment.last else None

    def plan(self, plan: Plan) -> None:
        """Keep a plan, durably. Raises AffidavitError as `Store.commit` does."""
        self._store.keep_notes({_PLAN: _plan_bytes(plan)})

    def add(self, segment: Archived) -> None:
        """Remember a segment that was read back whole, and let its plan go. Raises as `Store.commit` does."""
        if segment.first != self.size:
            raise ValueError(f"a segment from record {segment.first} does not follow {self.size} archived records")
        self._store.keep_notes({_key(segment): _archived_bytes(segment), _PLAN: None})
        self._segments = (*self._segments, segment)

    def release(self, segment: Archived) -> Archived:
        """Delete a segment's leaves from the store; its new note. Raises as `Store.commit` does."""
        gone = replace(segment, released=True)
        # Known before it is done: a reader that finds no leaf must find that it was released.
        self._segments = tuple(gone if known.first == segment.first else known for known in self._segments)
        self._store.keep_notes({_key(segment): _archived_bytes(gone)}, segment.indices)
        return gone


def _key(segment: Archived) -> bytes:
    return _SEGMENT + segment.first.to_bytes(8, "big")


def _archived_bytes(segment: Archived) -> bytes:
    note = {
        "v": _VERSION,
        "first": segment.first,
        "last": segment.last,
        "manifest": segment.manifest.hex(),
        "entries": segment.entries.hex(),
        "newest_time": time_text(segment.newest_time),
        "retain_until": time_text(segment.retain_until),
        "released": segment.released,
    }
    return json.dumps(note).encode()


def _archived(value: bytes) -> Archived:
    note: dict[str, Any] = json.loads(value)
    return Archived(
        note["first"],
        note["last"],
        bytes.fromhex(note["manifest"]),
        bytes.fromhex(note["entries"]),
        parse_time(note["newest_time"]),
        parse_time(note["retain_until"]),
        note["released"],
    )


def _plan_bytes(plan: Plan) -> bytes:
    note = {
        "v": _VERSION,
        "first": plan.first,
        "last": plan.last,
        "checkpoint": plan.checkpoint.decode(),
        "retain_until": time_text(plan.retain_until),
    }
    return json.dumps(note).encode()


def _plan(value: bytes) -> Plan:
    note: dict[str, Any] = json.loads(value)
    return Plan(note["first"], note["last"], note["checkpoint"].encode(), parse_time(note["retain_until"]))
