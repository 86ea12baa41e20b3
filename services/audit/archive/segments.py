"""Making a segment of the log, and having it in the archive: planned, built, written, read back.

Built from its plan, a segment has the same bytes each time: an upload that was cut short is taken up under the same
names, and what is there already is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.note import TreeHead, Verifier
from affidavit.libs.evidence.rangeproof import outer_siblings
from affidavit.libs.evidence.record import parse_leaf
from affidavit.libs.evidence.segment import (
    CHECKPOINT,
    ENTRIES,
    MANIFEST,
    SEGMENTS,
    Manifest,
    NamedFile,
    Part,
    SegmentError,
    check_segment,
    entries_bytes,
    segment_folder,
)
from affidavit.services.audit.archive.ledger import Archived, Plan
from affidavit.services.audit.archive.namedfiles import NamedFiles, sha256_of
from affidavit.services.audit.archive.objects import ObjectStore, ensure, first_written, read_back
from affidavit.services.audit.archive.retention import retain_until
from affidavit.services.audit.head import SignedHead
from affidavit.services.audit.log import EvidenceLog

_SEGMENT_BYTES = 8 << 20  # of leaves, at most (or one record): what reading one released record costs


@dataclass(frozen=True)
class Segment:
    """A segment with all that belongs to it."""

    manifest: Manifest
    entries: bytes
    checkpoint: bytes
    files: tuple[tuple[NamedFile, bytes], ...]


def plan(log: EvidenceLog, head: SignedHead, records: int, retention: timedelta) -> Plan:
    """The next segment: at most so many records, up to `head`. Reads the log; raises AffidavitError as it does."""
    first = log.ledger.size
    last, size, leaf = first, 0, b""
    for index in range(first, min(first + records, head.tree.size)):
        following = log.leaf(index)
        size += len(following)
        if leaf and size > _SEGMENT_BYTES:
            break
        last, leaf = index, following
    return Plan(first, last, head.note, retain_until(parse_leaf(leaf).time, retention))


def build(log: EvidenceLog, plan: Plan, named: NamedFiles) -> Segment:
    """The segment of a plan. Reads the log and the named files; raises AffidavitError or OSError as they do."""
    head = TreeHead.unverified(plan.checkpoint)
    leaves = [log.leaf(index) for index in range(plan.first, plan.last + 1)]
    paths = [log.prove(index, head.size) for index in (plan.first, plan.last)]
    before, after = outer_siblings(plan.first, plan.last, head.size, *paths)
    entries = entries_bytes(leaves)
    found = named.of(leaves)
    files = tuple((NamedFile(name, sha256_of(data)), data) for name, data in sorted(found.files.items()))
    previous = log.ledger.segments[-1].manifest if log.ledger.segments else None
    manifest = Manifest(
        origin=head.origin,
        first=plan.first,
        last=plan.last,
        previous=previous,
        newest_time=parse_leaf(leaves[-1]).time,
        retain_until=plan.retain_until,
        tree_size=head.size,
        before=tuple(before),
        after=tuple(after),
        entries=Part.of(entries),
        checkpoint=Part.of(plan.checkpoint),
        files=tuple(file for file, _ in files),
        missing=found.missing,
    )
    return Segment(manifest, entries, plan.checkpoint, files)


def write(objects: ObjectStore, segment: Segment) -> None:
    """Put all of a segment, the manifest last. Raises AffidavitError."""
    until, folder = segment.manifest.retain_until, segment.manifest.folder
    for file, data in segment.files:
        ensure(objects, file.key, data, until)
    ensure(objects, folder + ENTRIES, segment.entries, until)
    ensure(objects, folder + CHECKPOINT, segment.checkpoint, until)
    ensure(objects, folder + MANIFEST, segment.manifest.to_bytes(), until)


@dataclass(frozen=True)
class Whole:
    """A segment that was read back.

    Attributes:
        noted: what to remember of it.
        frontier: the log's tree after its last record.
        covered: its objects over which a later version or a delete marker stands.
    """

    noted: Archived
    leaves: list[bytes]
    frontier: Frontier
    covered: int


def read_whole(objects: ObjectStore, manifest: Manifest, verifiers: Sequence[Verifier]) -> Whole:
    """Read all of a segment back: hashes, dates, and every leaf against the signed checkpoint.

    Raises:
        AffidavitError: HASH_MISMATCH: something of it is not as the manifest says. SERVICE_UNAVAILABLE.
    """
    until, data = manifest.retain_until, manifest.to_bytes()
    wanted = {
        manifest.folder + MANIFEST: sha256_of(data),
        manifest.folder + ENTRIES: manifest.entries.sha256,
        manifest.folder + CHECKPOINT: manifest.checkpoint.sha256,
        **{file.key: file.sha256 for file in manifest.files},
    }
    found = {key: read_back(objects, key, digest, until) for key, digest in wanted.items()}
    entries = found[manifest.folder + ENTRIES].kept.data
    try:
        leaves, frontier = check_segment(manifest, entries, found[manifest.folder + CHECKPOINT].kept.data, verifiers)
    except SegmentError as error:
        raise AffidavitError("HASH_MISMATCH", f"{objects.place}: {error}") from None
    noted = Archived(
        manifest.first, manifest.last, sha256_of(data), manifest.entries.sha256, manifest.newest_time, until
    )
    return Whole(noted, leaves, frontier, sum(not version.copy.latest for version in found.values()))


def find_whole(objects: ObjectStore, first: int) -> Manifest | None:
    """The manifest of a segment that begins at `first` and was written whole, by this log or by its earlier self.

    Raises:
        AffidavitError: HASH_MISMATCH: it is no manifest.
    """
    for key in objects.keys(f"{SEGMENTS}{first:020}-"):
        if key.endswith(f"/{MANIFEST}") and (found := first_written(objects, key)):
            try:
                return Manifest.parse(found.kept.data)
            except SegmentError as error:
                raise AffidavitError("HASH_MISMATCH", f"{objects.place}: {key}: {error}") from None
    return None


def read_again(objects: ObjectStore, known: Archived, verifiers: Sequence[Verifier]) -> None:
    """Read a segment back that was noted before. Raises as `read_whole`."""
    key = segment_folder(known.first, known.last) + MANIFEST
    manifest = read_back(objects, key, known.manifest, known.retain_until).kept.data
    read_whole(objects, Manifest.parse(manifest), verifiers)
