"""A segment of an archived log: a run of leaves that proves itself, with a manifest that chains it to the one before.

| object                               | what                                                                        |
| ------------------------------------ | --------------------------------------------------------------------------- |
| `segments/<first>-<last>/entries`    | the leaves, as C2SP entry bundles have them: 16-bit big-endian length, leaf |
| `segments/<first>-<last>/checkpoint` | a signed checkpoint (C2SP `tlog-checkpoint`) that covers them               |
| `segments/<first>-<last>/manifest.json` | RFC 8785 JSON: hashes of both, the proof of the run, the previous manifest's hash |
| `files/sha256/<hash>`                | a card, manifest, signature or public key that the records name             |

`first` and `last` are indices of 20 digits, both included. The manifest is written last: a segment without one is an
upload that was cut short. A segment needs no other to be checked: `before` and `after` are the outer siblings of its
run (`rangeproof.py`), and `before` is also what all earlier segments must grow to. Salts are not in it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from affidavit.libs import canonicaljson
from affidavit.libs.canonicaljson import Json
from affidavit.libs.evidence.members import Members
from affidavit.libs.evidence.merkle import HASH_BYTES, Frontier, ProofError, leaf_hash
from affidavit.libs.evidence.note import NoteError, TreeHead, Verifier, open_checkpoint
from affidavit.libs.evidence.rangeproof import RangeCheck
from affidavit.libs.evidence.record import parse_leaf, parse_time, time_text
from affidavit.libs.evidence.tiles import TileError, bundle_bytes, parse_bundle

VERSION = 1
SEGMENTS = "segments/"
FILES = "files/sha256/"
ENTRIES, CHECKPOINT, MANIFEST = "entries", "checkpoint", "manifest.json"
_PROOF = ("tree_size", "before", "after", "parts")
_MEMBERS = frozenset(
    ["v", "origin", "first", "last", "previous", "newest_time", "retain_until", *_PROOF, "files", "missing"]
)


class SegmentError(ValueError):
    """A segment is not what its manifest, or the log's checkpoint, says."""


@dataclass(frozen=True)
class Part:
    """Hash and size of one object."""

    sha256: bytes
    size: int

    @classmethod
    def of(cls, data: bytes) -> "Part":
        return cls(hashlib.sha256(data).digest(), len(data))

    def check(self, data: bytes, what: str) -> None:
        """Raises SegmentError unless `data` is the object."""
        if Part.of(data) != self:
            raise SegmentError(f"{what} is not what its manifest says: its SHA-256 or its length is another")


@dataclass(frozen=True)
class NamedFile:
    """A file that records of the segment name; `name` is a path in the data or models folder."""

    name: str
    sha256: bytes

    @property
    def key(self) -> str:
        return FILES + self.sha256.hex()


@dataclass(frozen=True)
class Manifest:
    """What a segment says of itself.

    Attributes:
        previous: SHA-256 of the manifest before it; None for the first segment.
        newest_time: the last record's.
        retain_until: UTC, whole seconds; no object of the segment may be erased before it.
        tree_size: of the checkpoint.
        missing: what records name and was not there when the segment was made.
    """

    origin: str
    first: int
    last: int
    previous: bytes | None
    newest_time: datetime
    retain_until: datetime
    tree_size: int
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    entries: Part
    checkpoint: Part
    files: tuple[NamedFile, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The segment's prefix, with its last slash."""
        return segment_folder(self.first, self.last)

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def to_bytes(self) -> bytes:
        return canonicaljson.dumps(
            {
                "v": VERSION,
                "origin": self.origin,
                "first": str(self.first),
                "last": str(self.last),
                "previous": self.previous.hex() if self.previous else None,
                "newest_time": time_text(self.newest_time),
                "retain_until": time_text(self.retain_until),
                "tree_size": str(self.tree_size),
                "before": [digest.hex() for digest in self.before],
                "after": [digest.hex() for digest in self.after],
                "parts": {ENTRIES: _part(self.entries), CHECKPOINT: _part(self.checkpoint)},
                "files": [{"name": file.name, "sha256": file.sha256.hex()} for file in self.files],
                "missing": list(self.missing),
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> "Manifest":
        """Raises SegmentError unless `data` is a manifest in its one form."""
        try:
            return _parse(data)
        except (ValueError, RecursionError) as error:
            raise SegmentError(f"no manifest of a segment: {error}") from None


def segment_folder(first: int, last: int) -> str:
    """The prefix of a segment's objects."""
    return f"{SEGMENTS}{first:020}-{last:020}/"


def check_segment(
    manifest: Manifest, entries: bytes, checkpoint: bytes, verifiers: Sequence[Verifier]
) -> tuple[list[bytes], Frontier]:
    """The segment's leaves, and the log's frontier after them, once all of it leads to the signed root.

    Args:
        verifiers: the log's keys, under its origin.

    Raises:
        SegmentError: it does not; the message says where.
    """
    manifest.entries.check(entries, f"{manifest.folder}{ENTRIES}")
    manifest.checkpoint.check(checkpoint, f"{manifest.folder}{CHECKPOINT}")
    try:
        head = open_checkpoint(checkpoint, verifiers)
        leaves = parse_bundle(entries)
    except (NoteError, TileError) as error:
        raise SegmentError(f"{manifest.folder}: {error}") from None
    if (head.origin, head.size) != (manifest.origin, manifest.tree_size):
        raise SegmentError(f"{manifest.folder}: its checkpoint is of {head.size} records of log {head.origin}")
    if len(leaves) != manifest.count:
        raise SegmentError(f"{manifest.folder}: it has {len(leaves)} records, its name says {manifest.count}")
    _check_places(manifest, leaves)
    return leaves, _check_run(manifest, leaves, head)


def _check_places(manifest: Manifest, leaves: Sequence[bytes]) -> None:
    time = None
    for index, leaf in enumerate(leaves, manifest.first):
        try:
            record = parse_leaf(leaf)
        except ValueError as error:
            raise SegmentError(f"record {index} cannot be read: {error}") from None
        if record.index != index:
            raise SegmentError(f"{manifest.folder}: at place {index} is record {record.index}")
        time = record.time
    if time != manifest.newest_time:
        raise SegmentError(f"{manifest.folder}: newest_time is not its last record's")


def _check_run(manifest: Manifest, leaves: Sequence[bytes], head: TreeHead) -> Frontier:
    try:
        run = RangeCheck(manifest.first, manifest.before)
        frontier = Frontier(manifest.first, manifest.before)
        for leaf in leaves:
            run.add(leaf)
            frontier.append(leaf_hash(leaf))
        run.verify(head.size, head.root, manifest.after)
    except ProofError as error:
        raise SegmentError(f"{manifest.folder}: its records are not what was signed: {error}") from None
    return frontier


def entries_bytes(leaves: Sequence[bytes]) -> bytes:
    """The `entries` object. Raises ValueError for a leaf of more than 65,535 bytes."""
    return bundle_bytes(leaves)


def _part(part: Part) -> Json:
    return {"sha256": part.sha256.hex(), "bytes": str(part.size)}


def _parse(data: bytes) -> Manifest:
    members = Members(canonicaljson.loads(data), _MEMBERS, frozenset())
    if members.value("v") != VERSION or isinstance(members.value("v"), bool):
        raise ValueError(f"version {members.value('v')!r} is not {VERSION}")
    parts = Members(members.value("parts"), frozenset([ENTRIES, CHECKPOINT]), frozenset())
    manifest = Manifest(
        origin=members.text("origin"),
        first=members.uint64("first"),
        last=members.uint64("last"),
        previous=members.hash_or_none("previous"),
        newest_time=parse_time(members.text("newest_time")),
        retain_until=parse_time(members.text("retain_until")),
        tree_size=members.uint64("tree_size"),
        before=_hashes(members, "before"),
        after=_hashes(members, "after"),
        entries=_parse_part(parts.value(ENTRIES)),
        checkpoint=_parse_part(parts.value(CHECKPOINT)),
        files=tuple(_parse_file(item) for item in members.items("files")),
        missing=members.texts("missing"),
    )
    if manifest.last < manifest.first or manifest.retain_until.microsecond:
        raise ValueError("last is before first, or retain_until is no whole second")
    if (manifest.previous is None) != (manifest.first == 0):
        raise ValueError("the first segment, and no other, has no previous one")
    return manifest


def _parse_part(value: Json) -> Part:
    part = Members(value, frozenset(["sha256", "bytes"]), frozenset())
    return Part(_hash(part.value("sha256")), part.uint64("bytes"))


def _parse_file(value: Json) -> NamedFile:
    file = Members(value, frozenset(["name", "sha256"]), frozenset())
    return NamedFile(file.text("name"), _hash(file.value("sha256")))


def _hashes(members: Members, name: str) -> tuple[bytes, ...]:
    return tuple(_hash(item) for item in members.items(name))


def _hash(value: Json) -> bytes:
    if not isinstance(value, str) or len(value) != 2 * HASH_BYTES or value.strip("0123456789abcdef"):
        raise ValueError(f"{value!r} is not {HASH_BYTES} bytes in lower-case hex")
    return bytes.fromhex(value)
