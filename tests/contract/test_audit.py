"""The evidence log over gRPC: what is acknowledged is durable, provable and there once."""

import asyncio
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import from_rpc_error
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.receipt import read_receipt, write_receipt
from affidavit.libs.rpc import connect
from affidavit.services.audit.head import HeadFile
from tests.contract.audit_process import DEADLINE_S, AuditProcess, append, append_one, head, item, salt_of


@pytest.fixture
def audit(tmp_path) -> Iterator[AuditProcess]:
    process = AuditProcess(tmp_path / "home")
    yield process
    process.kill()


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[AuditProcess]:
    """One process for the tests that leave no trace in each other."""
    process = AuditProcess(tmp_path_factory.mktemp("shared") / "home")
    yield process
    process.kill()


async def refused(call) -> tuple[grpc.StatusCode, str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = from_rpc_error(caught.value, "audit")
    return caught.value.code(), error.reason, error.message


async def test_a_receipt_verifies_offline_with_the_public_key_alone(audit, tmp_path) -> None:
    async with audit.stub() as stub:
        result = await append_one(stub, item("r-1"))
    assert audit.stop() == 0
    write_receipt(tmp_path / "r.receipt.json", result.receipt)
    verified = audit.verify(read_receipt(tmp_path / "r.receipt.json"), "r-1")
    assert (verified.leaf.index, verified.leaf.kind, verified.result_checked) == (0, "page", True)
    assert verified.head.origin.startswith("affidavit.local/")


async def test_the_first_start_makes_a_private_key_and_a_head_and_later_ones_keep_them(audit) -> None:
    async with audit.stub() as stub:
        first = await head(stub)
    assert audit.stop() == 0
    key = audit.home / "keys" / "log.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    again = AuditProcess(audit.home)
    async with again.stub() as stub:
        assert await head(stub) == first
    assert again.stop() == 0
    assert key.read_bytes() == before
    note = HeadFile(audit.home / "audit" / "head").read()
    assert note is not None
    assert note.decode().startswith(first.origin)


async def test_every_item_is_answered_before_a_half_closed_stream_ends(audit) -> None:
    messages = [[item(f"r-{m}", f"page/{i}", m * 1000 + i) for i in range(1 + m * 7)] for m in range(20)]
    async with audit.stub() as stub:
        results = await append(stub, messages)
        assert sorted(r.sequence for r in results) == sorted(i.sequence for m in messages for i in m)
        assert {r.receipt.index for r in results} == set(range(len(results)))
        for result in results:
            m, i = divmod(result.sequence, 1000)
            audit.verify(result.receipt, f"r-{m}", f"page/{i}")
        assert (await head(stub)).size == len(results)


async def test_an_empty_stream_ends(shared) -> None:
    async with shared.stub() as stub:
        assert await append(stub, []) == []


async def test_times_never_go_back_in_the_log(shared) -> None:
    async with shared.stub() as stub:
        results = await append(stub, [[item(f"time-{n}")] for n in range(50)])
    leaves = sorted((shared.verify(r.receipt).leaf for r in results), key=lambda leaf: leaf.index)
    assert [leaf.time for leaf in leaves] == sorted(leaf.time for leaf in leaves)


async def test_the_same_key_with_the_same_content_gives_the_stored_receipt(audit) -> None:
    async with audit.stub() as stub:
        first = await append_one(stub, item("r-1"))
        await append_one(stub, item("r-2"))
        again = await append_one(stub, item("r-1", latency_us=99))
        assert not first.repeated_key
        assert again.repeated_key
        assert (again.receipt.leaf, again.receipt.salt) == (first.receipt.leaf, first.receipt.salt)
        assert again.receipt.inclusion_proof.tree_size == 2
        audit.verify(again.receipt, "r-1")
        assert (await head(stub)).size == 2


async def test_the_same_key_with_other_content_is_a_conflict_of_that_item_alone(audit) -> None:
    async with audit.stub() as stub:
        await append_one(stub, item("r-1"))
        results = await append(stub, [[item("r-1", sequence=1, content=b"other"), item("r-2", sequence=2)]])
        outcomes = {r.sequence: r for r in results}
        assert outcomes[1].error.reason == "IDEMPOTENCY_CONFLICT"
        assert "r-1" in outcomes[1].error.message
        audit.verify(outcomes[2].receipt, "r-2")


async def test_equal_keys_in_one_message_and_in_many_streams_make_one_leaf(audit) -> None:
    async with audit.stub() as stub:
        streams = [append(stub, [[item("same", sequence=n), item("same", sequence=n + 1)]]) for n in range(0, 64, 2)]
        results = [r for stream in await asyncio.gather(*streams) for r in stream]
        assert len(results) == 64
        assert {r.receipt.index for r in results} == {0}
        assert sum(not r.repeated_key for r in results) == 1
        for result in results:
            audit.verify(result.receipt, "same")
        assert (await head(stub)).size == 1


async def test_keys_of_tenants_requests_and_steps_never_meet(shared) -> None:
    async with shared.stub() as stub:
        keys = [("a", "bc", "d"), ("ab", "c", "d"), ("a", "b", "cd"), ("a", "bc", "e")]
        results = await append(stub, [[item(r, s, n, tenant=t) for n, (t, r, s) in enumerate(keys)]])
        assert len({r.receipt.index for r in results}) == 4


async def test_idempotency_survives_a_restart(audit) -> None:
    async with audit.stub() as stub:
        first = await append_one(stub, item("r-1"))
    assert audit.stop() == 0
    again = AuditProcess(audit.home)
    try:
        async with again.stub() as stub:
            repeated = await append_one(stub, item("r-1"))
            assert repeated.repeated_key
            assert repeated.receipt.leaf == first.receipt.leaf
            assert (await append_one(stub, item("r-1", content=b"x"))).error.reason == "IDEMPOTENCY_CONFLICT"
    finally:
        again.kill()


def broken(change) -> audit_pb2.AppendItem:
    made = item("broken", sequence=1)
    change(made)
    return made


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (broken(lambda i: i.ClearField("salt")), "salt"),
        (broken(lambda i: i.ClearField("step")), "step"),
        (broken(lambda i: setattr(i, "content_digest", b"short")), "content_digest"),
        (broken(lambda i: i.ClearField("draft")), "draft.tenant"),
        (broken(lambda i: setattr(i.draft, "options_json", b'{"dpi": 200}')), "options_json"),
        (broken(lambda i: setattr(i.draft, "options_json", b"not json")), "options_json"),
        (broken(lambda i: setattr(i.draft, "output_commitment", bytes(31))), "output_commitment"),
        (broken(lambda i: setattr(i.draft, "status", "great")), "status"),
        (broken(lambda i: setattr(i.draft, "parent_index", 10**6)), "parent_index"),
        (broken(lambda i: setattr(i.draft, "environment_index", 10**6)), "environment_index"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_item_that_no_record_can_hold_is_refused_and_its_neighbours_are_not(shared, bad, named) -> None:
    async with shared.stub() as stub:
        results = await append(stub, [[item(f"good {named}", sequence=0), bad, item(f"fine {named}", sequence=2)]])
        outcomes = {r.sequence: r for r in results}
        assert outcomes[1].error.reason == "INVALID_OPTION"
        assert named in outcomes[1].error.message
        shared.verify(outcomes[0].receipt, f"good {named}")
        shared.verify(outcomes[2].receipt, f"fine {named}")


@pytest.mark.parametrize("items", [[], [item(f"r-{n}") for n in range(1025)]], ids=["none", "too many"])
async def test_a_message_with_no_items_or_too_many_ends_the_stream(shared, items) -> None:
    async with shared.stub() as stub:
        code, reason, message = await refused(append(stub, [items]))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_STREAM")
    assert "1024" in message


async def test_a_record_is_found_by_index_and_by_key(audit) -> None:
    async with audit.stub() as stub:
        await append(stub, [[item(f"r-{n}", f"page/{n}", n) for n in range(9)]])
        by_key = await stub.GetRecord(
            audit_pb2.GetRecordRequest(key={"tenant": "default", "request_id": "r-4", "step": "page/4"})
        )
        by_index = await stub.GetRecord(audit_pb2.GetRecordRequest(index=by_key.receipt.index))
        assert by_index == by_key
        assert by_key.receipt.salt == salt_of("r-4", "page/4")
        audit.verify(by_key.receipt, "r-4", "page/4")


@pytest.mark.parametrize(
    ("request_fields", "reason"),
    [
        ({"index": 10**6}, "RECORD_NOT_FOUND"),
        ({"index": 2**64 - 1}, "RECORD_NOT_FOUND"),
        ({"key": {"tenant": "default", "request_id": "there-0", "step": "no"}}, "RECORD_NOT_FOUND"),
        ({"key": {"tenant": "", "request_id": "r-0", "step": "single"}}, "INVALID_OPTION"),
        ({}, "INVALID_OPTION"),
    ],
)
async def test_a_record_that_is_not_there_is_not_found(shared, request_fields, reason) -> None:
    async with shared.stub() as stub:
        await append(stub, [[item(f"there-{n}") for n in range(3)]])
        assert (await refused(stub.GetRecord(audit_pb2.GetRecordRequest(**request_fields))))[1] == reason


async def test_proofs_lead_to_every_size_that_the_log_ever_had(audit) -> None:
    async with audit.stub() as stub:
        frontier, leaves = merkle.Frontier(), []
        roots = [frontier.root()]
        for n in range(21):
            leaves.append((await append_one(stub, item(f"r-{n}"))).receipt.leaf)
            frontier.append(merkle.leaf_hash(leaves[-1]))
            roots.append(frontier.root())
        for size in range(1, 22):
            for index in (0, size // 2, size - 1):
                request = audit_pb2.GetInclusionProofRequest(leaf_index=index, tree_size=size)
                proof = (await stub.GetInclusionProof(request)).inclusion_proof
                merkle.verify_inclusion(index, size, merkle.leaf_hash(leaves[index]), proof.hashes, roots[size])
        newest = await stub.GetInclusionProof(audit_pb2.GetInclusionProofRequest(leaf_index=3))
        receipt = evidence_pb2.Receipt(
            leaf=leaves[3], index=3, checkpoint=newest.checkpoint, inclusion_proof=newest.inclusion_proof
        )
        assert audit.verify(receipt).head.size == 21
        for fields, reason in [
            ({"leaf_index": 21}, "RECORD_NOT_FOUND"),
            ({"leaf_index": 5, "tree_size": 5}, "INVALID_OPTION"),
            ({"leaf_index": 5, "tree_size": 22}, "INVALID_OPTION"),
        ]:
            call = stub.GetInclusionProof(audit_pb2.GetInclusionProofRequest(**fields))
            assert (await refused(call))[1] == reason


async def test_an_environment_record_carries_its_body_and_others_point_to_it(audit) -> None:
    environment = item("start-1", kind=evidence_pb2.RECORD_KIND_ENVIRONMENT, body_json=b'{"cpu":"x"}')
    async with audit.stub() as stub:
        first = await append_one(stub, environment)
        page = await append_one(stub, item("r-1", environment_index=first.receipt.index))
        assert audit.verify(first.receipt).leaf.body == {"cpu": "x"}
        assert audit.verify(page.receipt).leaf.environment_index == 0


async def test_a_closing_record_names_its_pages_and_never_later_ones(audit) -> None:
    async with audit.stub() as stub:
        await append(stub, [[item("r", f"page/{n}") for n in range(3)]])
        closing = {"kind": evidence_pb2.RECORD_KIND_DOCUMENT, "phase": evidence_pb2.RECORD_PHASE_CLOSED}
        good = await append_one(stub, item("r", "closed", children=[{"first": 0, "last": 2}], **closing))
        assert audit.verify(good.receipt).leaf.children == (range(3),)
        late = await append_one(stub, item("q", "closed", children=[{"first": 0, "last": 4}], **closing))
        assert late.error.reason == "INVALID_OPTION"


async def test_a_draining_service_ends_open_streams_and_stops(audit) -> None:
    async with audit.stub() as stub:
        stream = stub.AppendRecords()
        await stream.write(audit_pb2.AppendRecordsRequest(items=[item("r-1")]))
        answer = await stream.read()
        audit.verify(answer.results[0].receipt, "r-1")
        audit.process.terminate()
        code, reason, _ = await refused(stream.read())
        assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert audit.stop() == 0


async def test_a_client_that_leaves_leaves_the_log_serving(shared) -> None:
    async with shared.stub() as stub:
        stream = stub.AppendRecords()
        await stream.write(audit_pb2.AppendRecordsRequest(items=[item(f"gone-{n}") for n in range(500)]))
        stream.cancel()
        shared.verify((await append_one(stub, item("next"))).receipt, "next")


async def test_readiness_is_earned_by_a_write_and_a_read(shared) -> None:
    async with shared.stub(), connect(shared.address) as channel, asyncio.timeout(DEADLINE_S):
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service="affidavit.audit.v1.AuditService")
        )
        async for update in watch:
            if update.status == health_pb2.HealthCheckResponse.SERVING:
                break


async def test_metrics_count_what_was_appended(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics = f"127.0.0.1:{free.getsockname()[1]}"
    audit = AuditProcess(tmp_path / "home", "--metrics-address", metrics)
    try:
        async with audit.stub() as stub:
            await append(stub, [[item(f"r-{n}") for n in range(5)]])
            with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as page:
                text = page.read().decode()
    finally:
        audit.kill()
    assert "affidavit_audit_records_total 5.0" in text
    assert "affidavit_audit_tree_leaves 5.0" in text
    assert "affidavit_audit_batch_records_count" in text
    assert "affidavit_audit_commit_seconds_sum" in text


async def test_a_second_process_on_the_same_log_is_told_who_has_it(audit) -> None:
    async with audit.stub() as stub:
        second = AuditProcess(audit.home, address=f"unix:{audit.home}/second.sock")
        code, line = second.ended()
        assert code == 3
        assert str(audit.process.pid) in line
        audit.verify((await append_one(stub, item("r-1"))).receipt, "r-1")


async def test_the_head_may_live_in_another_folder(tmp_path) -> None:
    audit = AuditProcess(tmp_path / "home", "--head-folder", str(tmp_path / "elsewhere"))
    try:
        async with audit.stub() as stub:
            await append_one(stub, item("r-1"))
    finally:
        audit.kill()
    note = HeadFile(tmp_path / "elsewhere").read()
    assert note is not None
    assert note.decode().splitlines()[1] == "1"
    assert not (tmp_path / "home" / "audit" / "head").exists()


def test_bad_settings_end_with_exit_code_2() -> None:
    command = [sys.executable, "-m", "affidavit.services.audit", "--max-batch", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "max_batch (--max-batch)" in done.stderr
