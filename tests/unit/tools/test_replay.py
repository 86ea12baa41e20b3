"""Comparing an answer with its replay: the first difference by page, line and member, and what a tolerance covers."""

import json
from datetime import UTC, datetime

import pytest

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.evidence.commitment import commit
from affidavit.libs.evidence.record import leaf_bytes, parse_leaf
from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.tools.replay.compare import Difference, differences, tolerance_of, within
from affidavit.tools.replay.record import Recorded, RecordedPage
from affidavit.tools.replay.verdict import Verdict, judge

WORD = {"confidence": 9000, "quad": [0, 1, 2, 3, 4, 5, 6, 7], "text": "Harbour"}
LINE = {"confidence": 9100, "quad": [0, 1, 2, 3, 4, 5, 6, 7], "text": "Harbour", "words": [WORD]}
PAGE = {"page": 3, "status": "ok", "confidence": 9200, "lines": [LINE, LINE]}
RESULT = {"pages": [PAGE], "source": {"media_type": "application/pdf", "page_count": 5}, "v": 1}


def compared(*changes: tuple[tuple[str | int, ...], object]) -> list[Difference]:
    answer = json.loads(json.dumps(RESULT))
    for place, value in changes:
        at = answer
        for part in place[:-1]:
            at = at[part]
        at[place[-1]] = value
    return list(differences(canonicaljson.dumps(RESULT), canonicaljson.dumps(answer)))


def test_the_same_bytes_have_no_difference() -> None:
    assert compared() == []


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (("pages", 0, "lines", 1, "text"), "Harbor", 'page 3, line 2, text: "Harbour" recorded, "Harbor" replayed'),
        (("pages", 0, "lines", 0, "words", 0, "confidence"), 8999, "page 3, line 1, word 1, confidence: 9000 rec"),
        (("pages", 0, "lines"), [LINE], "page 3, lines, count: 2 recorded, 1 replayed"),
        (("pages", 0, "confidence"), True, "page 3, confidence: 9200 recorded, true replayed"),
        (("source", "page_count"), 6, "source, page_count: 5 recorded, 6 replayed"),
        (("pages",), [], "pages, count: 1 recorded, 0 replayed"),
    ],
)
def test_a_difference_is_named_by_page_line_and_member(place, value, text) -> None:
    (found,) = compared((place, value))
    assert found.text().startswith(text)


def test_a_tolerance_covers_confidences_up_to_its_bound_and_nothing_else() -> None:
    near = compared((("pages", 0, "confidence"), 9210), (("pages", 0, "lines", 0, "words", 0, "confidence"), 8990))
    assert len(near) == 2
    assert within(near, 0.001)
    assert not within(near, 0.0009)
    assert not within(near, 0.0)
    assert not within(compared((("pages", 0, "lines", 0, "text"), "Harbor")), 1.0)
    assert not within(compared((("pages", 0, "lines", 0, "quad", 0), 1)), 1.0)


def test_the_cards_of_the_document_bundle_promise_the_same_bits() -> None:
    cards = [m.card for m in ModelFolder(default_models_folder()).bundle("document").members.values()]
    assert tolerance_of(cards) == 0.0
    loose = cards[0].model_copy(update={"determinism": "tolerance: 1e-3"})
    assert tolerance_of([cards[1], loose]) == 0.001


def recorded(result: bytes, pages: list[bytes]) -> Recorded:
    """The records of an answer, as `record.read` gives them."""

    def page(output: bytes, kind: int, phase: int, salt: bytes) -> RecordedPage:
        draft = evidence_pb2.RecordDraft(tenant="a", request_id="r", kind=kind, phase=phase, bundle="document@1")
        draft.output_commitment = commit(salt, output)
        return RecordedPage(parse_leaf(leaf_bytes(draft, 0, datetime(2026, 11, 30, tzinfo=UTC), salt)), salt)

    closing = page(result, 1, 3, bytes(32))
    salts = [bytes([number]) * 32 for number in range(1, len(pages) + 1)]
    return Recorded(closing.leaf, closing.salt, tuple(page(p, 2, 1, s) for p, s in zip(pages, salts, strict=True)))


def test_a_verdict_is_the_same_tolerated_or_different() -> None:
    answer = canonicaljson.dumps(RESULT)
    near = answer.replace(b"9200", b"9201")
    then = recorded(answer, [b"one", b"two"])
    assert judge(then, answer, [], None, 0.0) == (Verdict.SAME, "")
    assert judge(then, answer, [], answer, 0.0) == (Verdict.SAME, "")
    where = "page 3, confidence: 9200 recorded, 9201 replayed"
    assert judge(then, near, [], answer, 0.001) == (Verdict.TOLERATED, where)
    assert judge(then, near, [], answer, 0.0) == (Verdict.DIFFERENT, where)


def test_without_the_recorded_answer_the_first_other_page_is_told_by_its_commitment() -> None:
    then = recorded(canonicaljson.dumps(RESULT), [b"one", b"two", b"three"])
    verdict, where = judge(then, b"{}", [b"one", b"2", b"3"], None, 1.0)
    assert (verdict, where.partition(";")[0]) == (
        Verdict.DIFFERENT,
        "the answer's page 2 of 3 is the first that differs",
    )
    assert judge(then, b"{}", [b"one"], None, 1.0)[1].startswith("3 pages recorded, 1 replayed")
