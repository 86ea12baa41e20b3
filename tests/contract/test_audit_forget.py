"""Forgetting a request: its salts are gone from every file, its leaves and everyone's proofs stay."""

from pathlib import Path

import grpc
import pytest

from affidavit.audit.v1 import audit_pb2
from tests.contract.audit_process import AuditProcess, append, append_one, item, salt_of


@pytest.fixture
def audit(tmp_path):
    process = AuditProcess(tmp_path / "home")
    yield process
    process.stop()


def files_with(home: Path, data: bytes) -> list[str]:
    return sorted(path.name for path in home.rglob("*") if path.is_file() and data in path.read_bytes())


async def get(stub, index: int):
    return (await stub.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt


STEPS = ("opened", "page/1", "closed")


@pytest.mark.parametrize("settled", [False, True], ids=["salts in the write-ahead log", "salts in tables"])
async def test_salts_are_gone_from_every_file_and_records_stay_provable(audit, tmp_path, settled) -> None:
    items = [item(request, step) for request in ("r-1", "r-2") for step in STEPS] + [item("r-11")]
    async with audit.stub() as stub:
        before = await append(stub, [items])
    assert len(before) == 7
    if settled:
        assert audit.stop() == 0
        audit = AuditProcess(tmp_path / "home")
    try:
        async with audit.stub() as stub:
            for step in STEPS:
                assert files_with(audit.home, salt_of("r-1", step)), "the salt is found where it is kept"
            answer = await stub.ForgetRecords(audit_pb2.ForgetRecordsRequest(tenant="default", request_id="r-1"))
            assert (list(answer.indices), answer.results_erased) == ([0, 1, 2], 0)
            for step in STEPS:
                assert files_with(audit.home, salt_of("r-1", step)) == []
            again = await stub.ForgetRecords(audit_pb2.ForgetRecordsRequest(tenant="default", request_id="r-1"))
            assert list(again.indices) == [0, 1, 2]
            leaves = {result.receipt.inclusion_proof.leaf_index: result.receipt.leaf for result in before}
            for index in range(7):
                receipt = await get(stub, index)
                assert receipt.leaf == leaves[index]
                assert bool(receipt.salt) == (index > 2)
                if index > 2:
                    audit.verify(receipt)
            refused = await append_one(stub, item("r-1", "opened"))
            assert refused.error.reason == "IDEMPOTENCY_CONFLICT"
        audit.kill()
        audit = AuditProcess(tmp_path / "home")
        async with audit.stub() as stub:
            assert not (await get(stub, 0)).salt
            assert (await get(stub, 3)).salt == salt_of("r-2", "opened")
        assert files_with(audit.home, salt_of("r-1", "page/1")) == []
    finally:
        audit.stop()


async def test_only_the_tenants_own_request_is_forgotten(audit) -> None:
    async with audit.stub() as stub:
        await append(stub, [[item("r-1", tenant="a"), item("r-1", tenant="b")]])
        answer = await stub.ForgetRecords(audit_pb2.ForgetRecordsRequest(tenant="b", request_id="r-1"))
        assert list(answer.indices) == [1]
        assert (await get(stub, 0)).salt
        assert not (await get(stub, 1)).salt
        for tenant, request_id, code in (("c", "r-1", grpc.StatusCode.NOT_FOUND), ("", "r-1", "INVALID")):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.ForgetRecords(audit_pb2.ForgetRecordsRequest(tenant=tenant, request_id=request_id))
            expected = grpc.StatusCode.INVALID_ARGUMENT if code == "INVALID" else code
            assert refused.value.code() is expected
