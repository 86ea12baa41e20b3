"""Where the background scrub of a log stands, and what it found: `audit/side/scrub`, JSON, version `v` 1.

    {"v": 1, "origin": "affidavit.local/…", "next": 4096, "findings": [], "unlisted": 0,
     "last_end": 1780000000.0, "last_records": 30056, "last_findings": [], "last_unlisted": 0}

It is a note of work done, not evidence: a file that is missing or damaged means that the next pass begins at record 0.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from affidavit.libs.evidence.durablefile import replace_file

FILE = Path("side") / "scrub"  # in the log's folder
MAX_FINDINGS = 100  # kept one by one; the rest are counted
_VERSION = 1


class ScrubFinding(NamedTuple):
    """Something that is wrong in the store."""

    part: str  # leaf, hash or store
    what: str
    restore: str
    record: int  # the record at which it was met; -1 for the tree as a whole


@dataclass(frozen=True)
class ScrubState:
    """The pass that runs, and the last one that ended."""

    origin: str
    next: int = 0  # the first record that this pass has not read
    findings: tuple[ScrubFinding, ...] = ()
    unlisted: int = 0  # findings of this pass that are counted only
    last_end: float = 0.0  # POSIX seconds; 0 for never
    last_records: int = 0
    last_findings: tuple[ScrubFinding, ...] = ()
    last_unlisted: int = 0

    @property
    def known(self) -> tuple[ScrubFinding, ...]:
        """What is known to be damaged: this pass's findings, and the last one's that it has not come to yet."""
        mine = {finding.record for finding in self.findings}
        return (
            *self.findings,
            *(f for f in self.last_findings if f.record not in mine and not 0 <= f.record < self.next),
        )

    @property
    def count(self) -> int:
        """How many findings there are, those that are only counted too."""
        return len(self.known) + max(self.unlisted, self.last_unlisted)

    @classmethod
    def load(cls, path: Path, origin: str = "") -> "ScrubState":
        """What stands in `path`; an empty state when it is of no use, or of another log than `origin` when one is given."""
        try:
            data: dict[str, Any] = json.loads(path.read_bytes())
            if data.pop("v") != _VERSION or (origin and data["origin"] != origin):
                return cls(origin)
            for name in ("findings", "last_findings"):
                data[name] = tuple(ScrubFinding(*finding) for finding in data[name])
            state = cls(**data)
            return state if state.next >= 0 and state.last_end >= 0 else cls(origin)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return cls(origin)

    def save(self, path: Path) -> None:
        """Replace the file durably. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"v": _VERSION} | asdict(self)).encode())
