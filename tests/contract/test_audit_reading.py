"""Reading the log over gRPC: lists, consistency, and checkpoints as they come."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import grpc
import pytest

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import from_rpc_error
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.note import TreeHead, Verifier, open_checkpoint, split_note
from tests.contract.audit_process import AuditProcess, append, append_one, item

PAGE, DECISION = evidence_pb2.RECORD_KIND_PAGE, evidence_pb2.RECORD_KIND_DECISION
RECORDS = [  # in this order in the log
    *[("a", f"doc-{n // 5}", f"page/{n}", PAGE, "ocr@1.0.0") for n in range(20)],
    *[("a", f"sms-{n}", "single", DECISION, "risk@2.0.0") for n in range(10)],
    *[("b", "doc-1", f"page/{n}", PAGE, "ocr@1.1.0") for n in range(10)],
    ("b", "doc-10", "page/0", PAGE, "ocrx@1.0.0"),  # its id and bundle begin as others do
    ("b", "doc-1", "late", DECISION, ""),
]


@pytest.fixture(scope="module")
def audit(tmp_path_factory) -> Iterator[AuditProcess]:
    process = AuditProcess(tmp_path_factory.mktemp("reading") / "home")
    asyncio.run(_fill(process))
    yield process
    process.kill()


async def _fill(process: AuditProcess) -> None:
    async with process.stub() as stub:
        for tenant, request_id, step, kind, bundle in RECORDS:  # one commit each: rising times
            await append_one(stub, item(request_id, step, tenant=tenant, kind=kind, bundle=bundle))


async def listed(stub, **fields) -> tuple[list[audit_pb2.ListRecordsResponse], list[audit_pb2.ListedRecord]]:
    responses = [response async for response in stub.ListRecords(audit_pb2.ListRecordsRequest(**fields))]
    return responses, [record for response in responses for record in response.records]


async def indices(stub, **fields) -> list[int]:
    return [record.index for record in (await listed(stub, **fields))[1]]


async def refused(call) -> tuple[grpc.StatusCode, str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = from_rpc_error(caught.value, "audit")
    return caught.value.code(), error.reason, error.message


def expected(fits) -> list[int]:
    found = [index for index, record in enumerate(RECORDS) if fits(*record)]
    assert found, "a condition that selects nothing would prove nothing"
    return found


async def test_a_list_of_all_has_every_leaf_under_its_checkpoint(audit) -> None:
    async with audit.stub() as stub:
        responses, records = await listed(stub)
    assert [record.index for record in records] == list(range(len(RECORDS)))
    note = responses[0].checkpoint.note
    origin = TreeHead.parse(split_note(note)[0]).origin
    head = open_checkpoint(note, [Verifier(origin, audit.key)])
    frontier = merkle.Frontier()
    for record in records:
        frontier.append(merkle.leaf_hash(record.leaf))
    assert (head.size, head.root) == (frontier.size, frontier.root())
    assert (responses[0].range.first, responses[0].range.last) == (0, len(RECORDS) - 1)
    assert not any(response.HasField("checkpoint") for response in responses[1:])


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"tenant": "b"}, lambda t, r, s, k, b: t == "b"),
        ({"request_id": "doc-1"}, lambda t, r, s, k, b: r == "doc-1"),
        ({"tenant": "b", "request_id": "doc-1"}, lambda t, r, s, k, b: (t, r) == ("b", "doc-1")),
        ({"tenant": "a", "request_id": "doc-1"}, lambda t, r, s, k, b: (t, r) == ("a", "doc-1")),
        ({"bundle": "ocr@1.0.0"}, lambda t, r, s, k, b: b == "ocr@1.0.0"),
        ({"bundle": "ocr"}, lambda t, r, s, k, b: b.startswith("ocr@")),
        ({"kind": DECISION}, lambda t, r, s, k, b: k == DECISION),
        ({"tenant": "b", "kind": DECISION}, lambda t, r, s, k, b: (t, k) == ("b", DECISION)),
        (
            {"tenant": "b", "request_id": "doc-1", "kind": PAGE},
            lambda t, r, s, k, b: (t, r, k) == ("b", "doc-1", PAGE),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
async def test_each_condition_selects_what_it_says_in_both_orders_and_up_to_a_limit(audit, fields, fits) -> None:
    want = expected(fits)
    async with audit.stub() as stub:
        assert await indices(stub, **fields) == want
        assert await indices(stub, newest_first=True, **fields) == want[::-1]
        assert await indices(stub, limit=2, **fields) == want[:2]
        assert await indices(stub, limit=1, newest_first=True, **fields) == want[:-2:-1]
        inside = [index for index in want if 12 <= index <= 38]
        assert await indices(stub, first_index=12, last_index=38, **fields) == inside


async def test_times_select_a_contiguous_range_at_every_boundary(audit) -> None:
    async with audit.stub() as stub:
        _, records = await listed(stub)
        stamps = [json.loads(record.leaf)["time"] for record in records]
        for text in {stamps[0], stamps[7], stamps[-1]}:
            microseconds = _microseconds(text)
            for shift in (-1, 0, 1):
                moment = {"seconds": (microseconds + shift) // 10**6, "nanos": (microseconds + shift) % 10**6 * 1000}
                later = [n for n, stamp in enumerate(stamps) if _microseconds(stamp) >= microseconds + shift]
                earlier = [n for n in range(len(stamps)) if n not in later]
                assert await indices(stub, from_time=moment) == later
                assert await indices(stub, to_time=moment) == earlier
                responses, _ = await listed(stub, from_time=moment)
                assert responses[0].HasField("range") == bool(later)
                if later:
                    assert (responses[0].range.first, responses[0].range.last) == (later[0], later[-1])


def _microseconds(text: str) -> int:
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return int(moment.replace(microsecond=0).timestamp()) * 10**6 + moment.microsecond


async def test_a_range_past_the_end_is_empty_and_says_so(audit) -> None:
    async with audit.stub() as stub:
        responses, records = await listed(stub, first_index=10**9)
        assert (len(responses), records) == (1, [])
        assert responses[0].checkpoint.note
        assert not responses[0].HasField("range")
        assert await indices(stub, first_index=len(RECORDS) - 1, last_index=2**64 - 1) == [len(RECORDS) - 1]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"first_index": 5, "last_index": 4}, "last_index"),
        ({"from_time": {"seconds": 2}, "to_time": {"seconds": 1}}, "to_time"),
        ({"kind": 99}, "kind"),
    ],
)
async def test_a_list_that_makes_no_sense_is_refused(audit, fields, named) -> None:
    async with audit.stub() as stub:
        code, reason, message = await refused(listed(stub, **fields))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_OPTION")
    assert named in message


async def test_large_records_come_in_messages_of_at_most_a_mebibyte(tmp_path) -> None:
    audit = AuditProcess(tmp_path / "home")
    try:
        async with audit.stub() as stub:
            body = json.dumps({"text": "x" * 30_000}, separators=(",", ":")).encode()
            made = [
                item(f"r-{n}", kind=evidence_pb2.RECORD_KIND_ENVIRONMENT, body_json=body, sequence=n) for n in range(80)
            ]
            results = await append(stub, [made[:40], made[40:]])
            assert all(result.HasField("receipt") for result in results)
            responses, records = await listed(stub)
            assert [record.index for record in records] == list(range(80))
            sizes = [sum(len(record.leaf) for record in response.records) for response in responses]
            assert max(sizes) <= 1 << 20
            assert sum(size > 0 for size in sizes) == 3
    finally:
        audit.kill()


async def test_consistency_holds_between_every_two_sizes(audit) -> None:
    async with audit.stub() as stub:
        _, records = await listed(stub)
        frontier, roots = merkle.Frontier(), [merkle.EMPTY_ROOT]
        for record in records:
            frontier.append(merkle.leaf_hash(record.leaf))
            roots.append(frontier.root())
        for second in range(1, len(roots)):
            for first in {1, second // 2, second - 1, second} - {0}:
                request = audit_pb2.GetConsistencyProofRequest(first_size=first, second_size=second)
                proof = await stub.GetConsistencyProof(request)
                merkle.verify_consistency(first, second, roots[first], roots[second], proof.hashes)
                assert (proof.second_size, proof.HasField("checkpoint")) == (second, False)
        newest = await stub.GetConsistencyProof(audit_pb2.GetConsistencyProofRequest(first_size=7))
        head = TreeHead.parse(split_note(newest.checkpoint.note)[0])
        assert newest.second_size == head.size == len(RECORDS)
        merkle.verify_consistency(7, head.size, roots[7], head.root, newest.hashes)
        with pytest.raises(merkle.ProofError):
            merkle.verify_consistency(7, head.size, roots[8], head.root, newest.hashes)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "first_size"),
        ({"first_size": 10**6}, "first_size"),
        ({"first_size": 5, "second_size": 4}, "second_size"),
        ({"first_size": 5, "second_size": 10**6}, "second_size"),
    ],
)
async def test_trees_that_never_were_have_no_consistency(audit, fields, named) -> None:
    async with audit.stub() as stub:
        call = stub.GetConsistencyProof(audit_pb2.GetConsistencyProofRequest(**fields))
        code, reason, message = await refused(call)
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_OPTION")
    assert named in message


async def test_a_watcher_sees_the_newest_checkpoint_at_once_and_then_newer_ones_until_the_service_stops(
    tmp_path,
) -> None:
    audit = AuditProcess(tmp_path / "home")
    try:
        async with audit.stub() as stub:
            watch = stub.WatchCheckpoints(audit_pb2.WatchCheckpointsRequest())
            gone = stub.WatchCheckpoints(audit_pb2.WatchCheckpointsRequest())
            assert [_size(await watch.read()), _size(await gone.read())] == [0, 0]
            for size in range(1, 6):
                await append_one(stub, item(f"r-{size}"))
                response = await watch.read()
                assert _size(response) == size
                head = TreeHead.parse(split_note(response.checkpoint.note)[0])
                open_checkpoint(response.checkpoint.note, [Verifier(head.origin, audit.key)])
            gone.cancel()
            await append_one(stub, item("after"))
            assert _size(await watch.read()) == 6
            audit.process.terminate()
            code, reason, _ = await refused(watch.read())
            assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert audit.stop() == 0
    finally:
        audit.kill()


def _size(response: audit_pb2.WatchCheckpointsResponse) -> int:
    return TreeHead.parse(split_note(response.checkpoint.note)[0]).size
