"""The word on a replay: bitwise the same, within the card's tolerance, or different, and where first."""

from collections.abc import Sequence
from enum import Enum

from affidavit.libs.evidence.commitment import commit
from affidavit.tools.replay.compare import differences, within
from affidavit.tools.replay.record import Recorded


class Verdict(Enum):
    SAME = "bitwise the same"
    TOLERATED = "within the card's tolerance"
    DIFFERENT = "different"


def judge(
    recorded: Recorded, result: bytes, pages: Sequence[bytes], known: bytes | None, tolerance: float
) -> tuple[Verdict, str]:
    """The verdict, and for people where the answers first differ (empty where they do not).

    Args:
        result: the replay's exact bytes.
        pages: the replay's pages, each by its exact bytes.
        known: the recorded answer, already checked against the record; without it no tolerance can be judged.
        tolerance: of confidences, as a part of 1.
    """
    if commit(recorded.salt, result) == recorded.leaf.output_commitment:
        return Verdict.SAME, ""
    if known is None:
        where = _first_page(recorded, pages)
        return Verdict.DIFFERENT, f"{where}; --result FILE with the recorded answer says what differs"
    found = list(differences(known, result))
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return (Verdict.TOLERATED if within(found, tolerance) else Verdict.DIFFERENT), found[0].text() + more


def _first_page(recorded: Recorded, pages: Sequence[bytes]) -> str:
    """Without the recorded answer, its commitments still tell which page is another."""
    if len(recorded.pages) != len(pages):
        return f"{len(recorded.pages)} pages recorded, {len(pages)} replayed"
    for number, (page, now) in enumerate(zip(recorded.pages, pages, strict=True), 1):
        if page.salt and commit(page.salt, now) != page.leaf.output_commitment:
            return f"the answer's page {number} of {len(pages)} is the first that differs"
    return "no page that can be told differs; what stands around them does"
