"""Usage counts each answer once."""

from datetime import UTC, datetime

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence.record import Leaf, leaf_bytes, parse_leaf
from affidavit.tools.cli.usage import count


def leaf(kind: int, phase: int, latency_us: int, output: bytes = b"", tenant: str = "a", bundle: str = "d@1") -> Leaf:
    draft = evidence_pb2.RecordDraft(
        tenant=tenant,
        request_id="r",
        kind=kind,
        phase=phase,
        latency_us=latency_us,
        output_commitment=output,
        bundle=bundle,
    )
    return parse_leaf(leaf_bytes(draft, 0, datetime(2026, 11, 30, tzinfo=UTC), bytes(32)))


def test_a_document_counts_when_it_was_answered_and_its_pages_each() -> None:
    answered = [leaf(1, 2, 1), leaf(2, 1, 10, bytes(32)), leaf(2, 1, 20, bytes(32)), leaf(1, 3, 30, bytes(32))]
    abandoned = [leaf(1, 2, 1), leaf(2, 1, 5, bytes(32)), leaf(1, 3, 7)]
    decided = [leaf(3, 1, 4, bytes(32), tenant="b", bundle="risk@2")]
    assert count(decided + answered + abandoned, ["tenant", "bundle"]) == [
        {"tenant": "a", "bundle": "d@1", "documents": 1, "pages": 3, "decisions": 0, "latency_us": 30},
        {"tenant": "b", "bundle": "risk@2", "documents": 0, "pages": 0, "decisions": 1, "latency_us": 4},
    ]
    assert [r["pages"] for r in count(answered + decided, ["bundle"])] == [2, 0]
