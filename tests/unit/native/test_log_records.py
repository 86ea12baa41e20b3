"""The log's records in native code: the same bytes as the readable reference, for whatever can be recorded."""

import hashlib
import json
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affidavit import _native
from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.draft import check_draft, check_name
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.record import leaf_bytes, time_text
from affidavit.services.audit.entry import checked, entry_of, read_request
from tests.unit.evidence.test_record import SALT, TIME, draft, drafts, names, uint64

DIGEST = hashlib.sha256(b"content").digest()


def item(made: evidence_pb2.RecordDraft, **fields) -> audit_pb2.AppendItem:
    fields = {"sequence": 7, "step": "page/1", "content_digest": DIGEST, "salt": SALT} | fields
    return audit_pb2.AppendItem(draft=made, **fields)


def check(sent: audit_pb2.AppendItem) -> None:
    """The whole check, in Python."""
    check_name("step", sent.step)
    check_draft(sent.draft, sent.salt)
    assert len(sent.content_digest) == 32


@given(drafts(), uint64, st.datetimes(min_value=datetime(1970, 1, 1)))
def test_a_native_leaf_has_the_bytes_of_the_reference(made, index, time) -> None:
    stamped = time.replace(tzinfo=UTC)
    assert entry_of(item(made)).leaf(index, time_text(stamped)) == leaf_bytes(made, index, stamped, SALT)


@given(drafts())
def test_a_leaf_is_never_longer_than_its_bound(made) -> None:
    entry = entry_of(item(made))
    assert len(entry.leaf(2**64 - 1, time_text(TIME))) <= entry.longest_leaf


def test_the_bound_holds_for_a_text_of_nothing_but_control_characters() -> None:
    made = draft(bundle="\x01" * 512, degraded=["\x02" * 512] * 18)
    entry = entry_of(item(made))
    assert len(entry.leaf(0, time_text(TIME))) == len(leaf_bytes(made, 0, TIME, SALT)) <= entry.longest_leaf


def test_every_kind_and_phase_has_its_word() -> None:
    for kind in filter(None, evidence_pb2.RecordKind.values()):
        for phase in filter(None, evidence_pb2.RecordPhase.values()):
            made = draft(kind=kind, phase=phase)
            entry = entry_of(item(made))
            assert entry.plain
            assert entry.leaf(0, time_text(TIME)) == leaf_bytes(made, 0, TIME, SALT)


@given(drafts(), names, uint64)
def test_an_item_shows_what_was_sent(made, step, sequence) -> None:
    sent = item(made, step=step, sequence=sequence)
    (read,) = read_request(audit_pb2.AppendRecordsRequest(items=[sent]).SerializeToString())
    assert (read.sequence, read.salt, read.content_digest) == (sequence, SALT, DIGEST)
    assert read.key == "\0".join((made.tenant, made.request_id, step)).encode()
    assert audit_pb2.AppendItem.FromString(read.data) == sent
    named = [made.children[-1].last] if made.children else []
    named += [getattr(made, n) for n in ("parent_index", "reused_from", "environment_index") if made.HasField(n)]
    assert read.newest_reference == max(named, default=None)


GOOD = item(draft(options_json=b'{"dpi":200}', bundle="document@1.0.0", steps=[{"service": "ocr", "threads": 2}]))
odd = st.sampled_from(["", "\n", "é", "x" * 128, "x" * 129, "x" * 513, "a\0b", "\x7f", "ok", "failed:NO_DISK"])
hashes = st.sampled_from([b"", b"x" * 31, b"x" * 32, b"x" * 33])


@settings(max_examples=300)
@given(st.data())
def test_what_is_plain_at_a_glance_is_what_the_whole_check_accepts(data) -> None:
    sent = audit_pb2.AppendItem()
    sent.CopyFrom(GOOD)
    for _ in range(data.draw(st.integers(0, 2))):
        match data.draw(st.integers(0, 4)):
            case 0:
                name = data.draw(st.sampled_from(["tenant", "request_id", "status", "bundle"]))
                setattr(sent.draft, name, data.draw(odd))
            case 1:
                sent.draft.steps[0].service = data.draw(odd)
                sent.draft.steps[0].engine = data.draw(odd)
                sent.draft.steps[0].model_hash = data.draw(hashes)
            case 2:
                sent.salt, sent.content_digest = data.draw(hashes), data.draw(hashes)
                sent.draft.input_commitment = data.draw(hashes)
            case 3:
                sent.draft.kind = data.draw(st.integers(-1, 10))
                sent.draft.phase = data.draw(st.integers(-1, 5))
            case _:
                sent.step = data.draw(odd)
                sent.draft.degraded[:] = data.draw(st.lists(odd, max_size=66))
    if _native.LogItem(sent.SerializeToString()).plain:
        check(sent)


json_texts = st.one_of(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text(max_size=5) | st.floats(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ).map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))),
    st.text(alphabet='{}[]",:0123456789-.eE truefalsn\\u', max_size=24).map(lambda text: '{"a":' + text + "}"),
    st.sampled_from(
        ['{"b":1,"a":2}', '{"a":1,"a":1}', '{"a":01}', '{"a":-0}', '{"a":1.0}', '{"a":"\\u0061"}', "[1]", ""]
    ),
)


@settings(max_examples=300)
@given(json_texts)
def test_json_that_is_plain_at_a_glance_is_canonical(text) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    if data and _native.LogItem(item(draft(options_json=data)).SerializeToString()).plain:
        assert isinstance(canonicaljson.loads(data), dict)


def test_the_usual_case_is_plain() -> None:
    """Were it not, every record would be checked the slow way, and no other test would tell."""
    assert _native.LogItem(GOOD.SerializeToString()).plain
    for options in (b"{}", b'{"a":[1,-2,{"b":null}],"c":true,"d":"x","e":false}', b'{"a":0}'):
        assert _native.LogItem(item(draft(options_json=options)).SerializeToString()).plain


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused_with_words(data) -> None:
    for message in (data, b"\x0a" + bytes([len(data) % 128]) + data):
        try:
            items = read_request(message)
        except AffidavitError as error:
            assert error.reason == "INVALID_STREAM"
        else:
            assert len(items) == len(audit_pb2.AppendRecordsRequest.FromString(message).items)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=40))
def test_every_truncation_of_a_message_is_read_as_protobuf_reads_it(size, noise) -> None:
    whole = audit_pb2.AppendRecordsRequest(items=[GOOD, GOOD]).SerializeToString()
    for message in (whole[:size], whole[:size] + noise):
        try:
            items = read_request(message)
        except AffidavitError:
            continue
        for read in items:
            try:
                checked(read)
            except AffidavitError as error:
                assert error.reason == "INVALID_OPTION"


def test_an_item_whose_draft_comes_in_parts_is_read_as_protobuf_merges_it() -> None:
    first, second = draft().SerializeToString(), evidence_pb2.RecordDraft(bundle="b@1").SerializeToString()
    parts = b"".join(b"\x22" + bytes([len(part)]) + part for part in (first, second))
    body = audit_pb2.AppendItem(sequence=1, step="s", content_digest=DIGEST, salt=SALT).SerializeToString() + parts
    (read,) = read_request(b"\x0a" + (len(body) + 128 & 127 | 128).to_bytes(1) + (len(body) >> 7).to_bytes(1) + body)
    assert checked(read).leaf(0, time_text(TIME)) == leaf_bytes(draft(bundle="b@1"), 0, TIME, SALT)


def grow(frontier: Frontier, count: int) -> _native.Growth:
    entries = [entry_of(item(draft(), step=f"s/{n}")) for n in range(count)]
    return _native.Growth(frontier.size, frontier.peaks, entries, time_text(TIME))


@given(st.integers(0, 300), st.integers(0, 70))
def test_a_tree_grows_and_proves_as_the_reference_does(size, count) -> None:
    nodes: dict[tuple[int, int], bytes] = {}
    frontier = Frontier()
    for n in range(size):
        nodes |= {(level, index): digest for level, index, digest in frontier.append(merkle.leaf_hash(b"%d" % n))}
    growth = grow(frontier, count)
    completed: list[tuple[bytes, bytes]] = []
    for n, leaf in enumerate(growth.leaves):
        assert leaf == leaf_bytes(draft(), size + n, TIME, SALT)
        for level, index, digest in frontier.append(merkle.leaf_hash(leaf)):
            nodes[level, index] = digest
            completed.append((level.to_bytes(1) + index.to_bytes(8), digest))
    assert growth.nodes == completed
    assert (growth.size, growth.peaks, growth.root) == (frontier.size, frontier.peaks, frontier.root())
    for index in range(size, frontier.size):
        path = growth.path(index)
        assert path == merkle.prove_inclusion(index, frontier.size, lambda level, number: nodes[level, number])
    for index in {size - 1, frontier.size} - {-1}:
        with pytest.raises(IndexError):
            growth.path(index)


def test_a_frontier_that_does_not_fit_its_size_is_refused() -> None:
    assert _native.Growth(3, [bytes(32)] * 2, [], time_text(TIME)).size == 3
    for peaks in ([bytes(32)], [bytes(32), bytes(31)], [bytes(32)] * 3):
        with pytest.raises(ValueError, match=r"peak|hash"):
            _native.Growth(3, peaks, [], time_text(TIME))


@given(st.binary(max_size=300))
def test_both_sha_256_are_the_standard_librarys(data) -> None:
    assert _native.sha256(data) == _native.sha256_portable(data) == hashlib.sha256(data).digest()


def test_both_sha_256_hold_at_every_length_around_a_block() -> None:
    lengths = [*range(200), *(n for pair in pairwise(range(256, 4096, 64)) for n in pair)]
    for data in (bytes(range(256)) * 16,):
        for n in lengths:
            assert _native.sha256(data[:n]) == _native.sha256_portable(data[:n]) == hashlib.sha256(data[:n]).digest()


@given(
    uint64, uint64, st.binary(max_size=300), st.lists(st.binary(min_size=32, max_size=32), max_size=64), st.booleans()
)
def test_a_result_has_the_bytes_of_the_message(sequence, index, leaf, path, repeated) -> None:
    receipt = evidence_pb2.Receipt(
        leaf=leaf,
        index=index,
        salt=SALT if repeated else b"",
        checkpoint=evidence_pb2.Checkpoint(note=leaf[:200]),
        inclusion_proof=evidence_pb2.InclusionProof(leaf_index=index, tree_size=index, hashes=path),
    )
    result = audit_pb2.AppendResult(sequence=sequence, receipt=receipt, repeated_key=repeated)
    ours = _native.append_result(sequence, index, leaf, receipt.salt, leaf[:200], index, path, repeated)
    assert ours == audit_pb2.AppendRecordsResponse(results=[result]).SerializeToString()
