"""Record v1: one form for every record, read strictly."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import rfc8785
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.commitment import commit
from affidavit.libs.evidence.draft import MAX_LEAF_BYTES, check_draft
from affidavit.libs.evidence.record import leaf_bytes, parse_leaf

FIXTURE = Path(__file__).parents[2] / "fixtures" / "record-v1.json"
SALT = bytes(range(32))
TIME = datetime(2026, 11, 30, 21, 9, 0, 1, tzinfo=UTC)


def draft(**fields) -> evidence_pb2.RecordDraft:
    fields = {"tenant": "default", "request_id": "r-1", "kind": 2, "phase": 1, "status": "ok"} | fields
    return evidence_pb2.RecordDraft(**fields)


names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)
texts = st.text(max_size=20)
hashes = st.one_of(st.just(b""), st.binary(min_size=32, max_size=32))
uint64 = st.integers(0, 2**64 - 1)
objects = st.dictionaries(texts, st.one_of(st.integers(-(2**53) + 1, 2**53 - 1), texts, st.none(), st.booleans()))
steps = st.builds(
    evidence_pb2.StepEvidence,
    service=names,
    software=texts,
    model=texts,
    version=texts,
    model_hash=hashes,
    engine=texts,
    engine_version=texts,
    precision=texts,
    threads=st.integers(0, 2**32 - 1),
    device_id=texts,
    input_digest=hashes,
    output_digest=hashes,
)


@st.composite
def drafts(draw: st.DrawFn) -> evidence_pb2.RecordDraft:
    phase = draw(st.sampled_from([1, 2, 3]))
    kind = draw(st.integers(1, 8))
    made = draft(
        tenant=draw(names),
        request_id=draw(names),
        kind=kind,
        phase=phase,
        parent_index=draw(st.none() | uint64),
        input_commitment=draw(hashes),
        output_commitment=draw(hashes),
        status=draw(st.sampled_from(["", "ok", "uncertain", "cancelled", "failed:PAGE_BROKEN"])),
        degraded=draw(st.lists(st.text(min_size=1, max_size=20), max_size=3)),
        reused_from=draw(st.none() | uint64),
        spooled=draw(st.booleans()),
        latency_us=draw(uint64),
        bundle=draw(texts),
        environment_index=draw(st.none() | uint64),
        steps=draw(st.lists(steps, max_size=3)),
    )
    if draw(st.booleans()):
        made.options_json = canonicaljson.dumps(draw(objects))
    if kind in (7, 8):
        made.body_json = canonicaljson.dumps(draw(objects))
    if phase == 3:
        edges = sorted(draw(st.sets(st.integers(0, 2**63), max_size=6)))
        for first, last in zip(edges[::2], edges[1::2], strict=False):
            made.children.add(first=first, last=last)
    return made


@given(drafts(), uint64, st.datetimes(min_value=datetime(1970, 1, 1)))
def test_a_leaf_is_rfc_8785_and_reads_back_as_what_was_drafted(made, index, time) -> None:
    check_draft(made, SALT)
    leaf = leaf_bytes(made, index, time.replace(tzinfo=UTC), SALT)
    assert leaf == canonicaljson.dumps(canonicaljson.loads(leaf)) == rfc8785.dumps(json.loads(leaf))
    read = parse_leaf(leaf)
    assert (read.index, read.time) == (index, time.replace(tzinfo=UTC))
    assert (read.tenant, read.request_id, read.latency_us) == (made.tenant, made.request_id, made.latency_us)
    assert (read.input_commitment or b"", read.output_commitment or b"") == (
        made.input_commitment,
        made.output_commitment,
    )
    assert read.parent_index == (made.parent_index if made.HasField("parent_index") else None)
    assert [(r.start, r.stop - 1) for r in read.children] == [(c.first, c.last) for c in made.children]
    for step, drafted in zip(read.steps, made.steps, strict=True):
        assert step.service == drafted.service
        assert step.input_hash == (commit(SALT, drafted.input_digest) if drafted.input_digest else None)


def test_the_fixture_of_version_1_is_written_and_read_as_ever() -> None:
    fixture = json.loads(FIXTURE.read_text())
    for case in fixture["cases"]:
        made = json_format.ParseDict(case["draft"], evidence_pb2.RecordDraft())
        salt = bytes.fromhex(fixture["salt"])
        leaf = leaf_bytes(made, case["index"], datetime.fromisoformat(case["time"]), salt)
        assert leaf.decode() == case["leaf"]
        assert parse_leaf(case["leaf"].encode()).index == case["index"]


def test_plain_digests_of_steps_are_nowhere_in_the_leaf() -> None:
    digest = bytes(range(100, 132))
    leaf = leaf_bytes(draft(steps=[{"service": "ocr", "input_digest": digest}]), 0, TIME, SALT)
    assert digest.hex().encode() not in leaf
    assert commit(SALT, digest).hex().encode() in leaf


def test_every_member_stands_there_and_absent_ones_are_null() -> None:
    record = json.loads(leaf_bytes(draft(status=""), 0, TIME, SALT))
    assert record["parent_index"] is record["options"] is record["status"] is record["bundle"] is None
    assert record["degraded"] == record["steps"] == []
    assert not {"children", "body"} & record.keys()


def test_times_are_utc_whatever_zone_they_came_from() -> None:
    elsewhere = TIME.astimezone(datetime.now(UTC).astimezone().tzinfo)
    assert leaf_bytes(draft(), 0, elsewhere, SALT) == leaf_bytes(draft(), 0, TIME, SALT)
    assert parse_leaf(leaf_bytes(draft(), 0, TIME + timedelta(hours=1), SALT)).time == TIME + timedelta(hours=1)


GOOD = json.loads(leaf_bytes(draft(), 5, TIME, SALT))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"v": 2}, "version"),
        ({"v": True}, "version"),
        ({"index": 5}, "decimal string"),
        ({"index": "05"}, "shortest"),
        ({"index": "-5"}, "decimal string"),
        ({"index": str(2**64)}, "64-bit"),
        ({"index": "٥"}, "decimal string"),
        ({"time": "2026-11-30T21:09:00.000001+00:00"}, "format"),
        ({"time": "2026-11-30T21:09:00.1Z"}, "RFC 3339"),
        ({"kind": "letter"}, "kind"),
        ({"phase": "PHASE_SINGLE"}, "phase"),
        ({"tenant": ""}, "tenant"),
        ({"status": "great"}, "status"),
        ({"input_commitment": "AB" * 32}, "hex"),
        ({"input_commitment": "ab" * 31}, "hex"),
        ({"options": "{}"}, "options"),
        ({"spooled": 0}, "spooled"),
        ({"degraded": None}, "degraded"),
        ({"degraded": [1]}, "degraded"),
        ({"children": []}, "children"),
        ({"children": ["3-3"]}, "children"),
        ({"children": ["4", "3"]}, "children"),
        ({"extra": 1}, "unknown: extra"),
        ({"tenant": ...}, "missing: tenant"),
        ({"steps": [{}]}, "missing"),
    ],
)
def test_a_leaf_of_any_other_form_is_refused(change: dict, complaint: str) -> None:
    parse_leaf(canonicaljson.dumps(GOOD))
    changed = {name: value for name, value in (GOOD | change).items() if value is not ...}
    with pytest.raises(ValueError, match=complaint):
        parse_leaf(canonicaljson.dumps(changed))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"v": 1}', b"\xff", b"[" * 60_000])
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_leaf(data)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tenant": ""}, "draft.tenant"),
        ({"request_id": "x" * 129}, "draft.request_id"),
        ({"request_id": "a\0b"}, "draft.request_id"),
        ({"kind": 0}, "draft.kind"),
        ({"kind": 99}, "draft.kind"),
        ({"phase": 0}, "draft.phase"),
        ({"input_commitment": b"short"}, "draft.input_commitment"),
        ({"output_commitment": bytes(33)}, "draft.output_commitment"),
        ({"options_json": b'{"dpi": 200}'}, "draft.options_json"),
        ({"options_json": b'{"dpi":0.5}'}, "draft.options_json"),
        ({"options_json": b"[]"}, "draft.options_json"),
        ({"options_json": b"\xff"}, "draft.options_json"),
        ({"options_json": b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"}, "draft.options_json"),
        ({"options_json": b'{"a":1,"a":1}'}, "draft.options_json"),
        ({"status": "fine"}, "draft.status"),
        ({"status": "failed:"}, "draft.status"),
        ({"degraded": [""]}, "draft.degraded"),
        ({"steps": [{}]}, "draft.steps.service"),
        ({"steps": [{"service": "ocr", "model_hash": b"x"}]}, "draft.steps.model_hash"),
        ({"children": [{"first": 1, "last": 2}]}, "draft.children"),
        ({"phase": 3, "children": [{"first": 2, "last": 1}]}, "draft.children"),
        ({"phase": 3, "children": [{"first": 1, "last": 2}, {"first": 2, "last": 3}]}, "draft.children"),
        ({"body_json": b"{}"}, "draft.body_json"),
    ],
)
def test_a_draft_that_a_record_cannot_hold_is_refused_by_field(fields: dict, field: str) -> None:
    check_draft(draft(), SALT)
    with pytest.raises(AffidavitError) as caught:
        check_draft(draft(**fields), SALT)
    assert (caught.value.reason, caught.value.field) == ("INVALID_OPTION", field)


def test_a_salt_of_another_length_is_refused() -> None:
    with pytest.raises(AffidavitError, match="salt"):
        check_draft(draft(), bytes(31))


def test_a_leaf_that_no_entry_bundle_could_hold_is_refused() -> None:
    children = [{"first": 10**17 + 2 * i, "last": 10**17 + 2 * i} for i in range(4000)]
    with pytest.raises(ValueError, match=str(MAX_LEAF_BYTES)):
        leaf_bytes(draft(phase=3, children=children), 2**63, TIME, SALT)
