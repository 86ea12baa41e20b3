"""The total check of an archive: every segment read back, every leaf against a signed checkpoint, the chain, the dates.

It believes nothing but the log's public keys. What the store remembers of the archive, where there is a store, tells
whether a segment is missing at the end.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.note import Verifier
from affidavit.libs.evidence.segment import MANIFEST, SEGMENTS, Manifest, SegmentError, segment_folder
from affidavit.services.audit.archive.ledger import Archived
from affidavit.services.audit.archive.namedfiles import sha256_of
from affidavit.services.audit.archive.objects import Kept, ObjectStore, find, first_written
from affidavit.services.audit.archive.segments import read_whole
from affidavit.services.audit.offline import Progress

Verifiers = Callable[[str], list[Verifier]]  # of a log's origin


@dataclass
class ArchiveReport:
    """What a check of an archive found."""

    place: str
    origin: str = ""
    segments: int = 0
    first: int = 0
    records: int = 0
    bytes: int = 0
    missing_files: int = 0  # named by records, and not there when their segment was made
    expired: int = 0  # segments that are gone, as they may be
    covered: int = 0  # objects over which a later version or a delete marker stands; the first version is whole
    cut_short: list[str] = field(default_factory=list[str])  # uploads without a manifest
    findings: list[str] = field(default_factory=list[str])

    def as_json(self) -> str:
        return json.dumps(asdict(self) | {"whole": not self.findings}, indent=1)

    def as_text(self) -> str:
        lines = [f"DAMAGED {finding}" for finding in self.findings]
        if self.covered:
            lines.append(f"{self.covered} objects were overwritten or deleted since; their first versions are whole")
        if self.cut_short:
            lines.append(f"{len(self.cut_short)} uploads were cut short and not taken up: {', '.join(self.cut_short)}")
        if self.missing_files:
            lines.append(
                f"{self.missing_files} files that records name were not there to be archived; ls --json says which"
            )
        if self.expired:
            lines.append(f"{self.expired} segments are gone after their date")
        state = "whole" if not self.findings else f"{len(self.findings)} findings"
        what = f"{self.records} records from {self.first} in {self.segments} segments, {self.bytes} bytes"
        lines.append(f"{self.place}: log {self.origin or 'unknown'}: {what}: {state}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Listed:
    """A manifest as it stands in the archive."""

    manifest: Manifest
    sha256: bytes


def verify_archive(
    objects: ObjectStore, verifiers: Verifiers, known: Sequence[Archived] | None, now: datetime, progress: Progress
) -> ArchiveReport:
    """Check all of it; damage is in the report. `known` is the store's ledger, None where there is no store.

    Raises:
        AffidavitError: SERVICE_UNAVAILABLE, INVALID_OPTION: it cannot be read at all.
    """
    report = ArchiveReport(objects.place)
    objects.check()
    folders, report.cut_short = _folders(objects)
    remembered = {segment_folder(s.first, s.last): s for s in known or ()}
    chain = _Chain(report)
    for done, folder in enumerate(folders, 1):
        listed = _manifest(objects, folder, remembered.pop(folder, None), report)
        if listed is not None:
            chain.add(listed)
            _check(objects, listed.manifest, verifiers, chain, report)
        progress("segments", done, len(folders))
    for folder, segment in remembered.items():
        if segment.retain_until < now:
            report.expired += 1
        else:
            report.findings.append(
                f"{folder}: is missing; it was read back and is to be kept until {segment.retain_until:%FT%TZ}"
            )
    return report


def list_archive(objects: ObjectStore) -> Iterator[Listed]:
    """The manifests in the archive, in order, not verified. Raises AffidavitError: as `verify_archive`; HASH_MISMATCH."""
    for folder in _folders(objects)[0]:
        report = ArchiveReport(objects.place)
        listed = _manifest(objects, folder, None, report)
        if listed is None:
            raise AffidavitError("HASH_MISMATCH", report.findings[0])
        yield listed


class _Chain:
    """Each segment goes on where the one before ended: indices, manifests' hashes, and the tree itself."""

    def __init__(self, report: ArchiveReport) -> None:
        self._report = report
        self._last: Listed | None = None
        self._frontier: Frontier | None = None

    def add(self, listed: Listed) -> None:
        before, manifest, report = self._last, listed.manifest, self._report
        self._last = listed
        if before is None:
            report.origin, report.first = manifest.origin, manifest.first
            return
        if manifest.origin != before.manifest.origin:
            report.findings.append(f"{manifest.folder}: of another log, {manifest.origin}")
        if manifest.first != before.manifest.last + 1:
            gap = f"it begins at record {manifest.first}, the one before ends at {before.manifest.last}"
            report.findings.append(f"{manifest.folder}: {gap}")
        elif manifest.previous != before.sha256:
            report.findings.append(
                f"{manifest.folder}: its manifest does not name the manifest before it: the chain is cut"
            )
        elif self._frontier and tuple(self._frontier.peaks) != manifest.before:
            report.findings.append(
                f"{manifest.folder}: it goes on from other records than the segment before it: a fork"
            )

    def grown(self, frontier: Frontier | None) -> None:
        """The tree after the segment that was added; None where it is damaged."""
        self._frontier = frontier


def _check(
    objects: ObjectStore, manifest: Manifest, verifiers: Verifiers, chain: _Chain, report: ArchiveReport
) -> None:
    frontier = None
    try:
        whole = read_whole(objects, manifest, verifiers(manifest.origin))
        frontier = whole.frontier
        report.covered += whole.covered
    except AffidavitError as error:
        if error.reason == "SERVICE_UNAVAILABLE":
            raise
        report.findings.append(error.message)
    chain.grown(frontier)
    report.segments += 1
    report.records += manifest.count
    report.bytes += manifest.entries.size
    report.missing_files += len(manifest.missing)


def _manifest(objects: ObjectStore, folder: str, known: Archived | None, report: ArchiveReport) -> Listed | None:
    key = folder + MANIFEST
    found = find(objects, key, known.manifest) if known else first_written(objects, key)
    if found is None:
        report.findings.append(f"{key}: no version of it has the bytes that were read back")
        return None
    manifest = _parse(key, folder, found.kept, report)
    return Listed(manifest, sha256_of(found.kept.data)) if manifest else None


def _parse(key: str, folder: str, kept: Kept, report: ArchiveReport) -> Manifest | None:
    try:
        manifest = Manifest.parse(kept.data)
    except SegmentError as error:
        report.findings.append(f"{key}: {error}")
        return None
    if manifest.folder != folder:
        report.findings.append(f"{key}: says that it is {manifest.folder}")
        return None
    return manifest


def _folders(objects: ObjectStore) -> tuple[list[str], list[str]]:
    """Segments with a manifest, in order, and those without."""
    whole: dict[str, bool] = {}
    for key in objects.keys(SEGMENTS):
        folder, _, name = key.rpartition("/")
        whole[f"{folder}/"] = whole.get(f"{folder}/", False) or name == MANIFEST
    return sorted(f for f in whole if whole[f]), sorted(f for f in whole if not whole[f])
