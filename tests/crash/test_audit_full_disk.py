"""A disk that takes no more: appends are refused by name, nothing is acknowledged, reads go on, and it recovers."""

import asyncio
import resource
from pathlib import Path

from affidavit.audit.v1 import audit_pb2
from tests.contract.audit_process import DEADLINE_S, AuditProcess, append, append_one, head, item

LIMIT = 3 << 20  # no file of the process grows beyond this: EFBIG, as ENOSPC on a full disk


async def fill_up(audit: AuditProcess, stub) -> tuple[list[audit_pb2.AppendResult], audit_pb2.AppendResult]:
    """Append until the disk refuses; the acknowledged results and the first refusal."""
    options = b'{"note":"' + b"x" * 30_000 + b'"}'
    acknowledged: list[audit_pb2.AppendResult] = []
    for n in range(1000):
        result = await append_one(stub, item(f"r-{n}", sequence=n, options_json=options))
        if result.WhichOneof("outcome") == "error":
            return acknowledged, result
        acknowledged.append(result)
    raise AssertionError("the disk never refused")


async def test_a_full_disk_refuses_appends_keeps_reads_and_recovers_without_a_restart(tmp_path: Path) -> None:
    audit = AuditProcess(tmp_path / "home", "--canary-interval-s", "0.2", file_size_limit=LIMIT)
    try:
        async with audit.stub() as stub:
            acknowledged, refusal = await fill_up(audit, stub)
            assert refusal.error.reason == "STORAGE_FULL"
            assert "free some space" in refusal.error.message
            before = len(acknowledged)
            assert before > 10
            for result in acknowledged:  # reads go on, and nothing that was refused is among them
                request = audit_pb2.GetRecordRequest(index=result.receipt.index)
                record = (await stub.GetRecord(request)).receipt
                assert record.leaf == result.receipt.leaf
                audit.verify(record, f"r-{result.sequence}")

            resource.prlimit(audit.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            async with asyncio.timeout(DEADLINE_S):
                while (again := await append_one(stub, item("after"))).WhichOneof("outcome") == "error":
                    assert again.error.reason in ("STORAGE_FULL", "LOG_UNAVAILABLE")
                    await asyncio.sleep(0.05)
            audit.verify(again.receipt, "after")
            # What was refused may come again, and is then there once.
            options = b'{"note":"' + b"x" * 30_000 + b'"}'
            retried = await append_one(stub, item(f"r-{before}", options_json=options))
            audit.verify(retried.receipt, f"r-{before}")
            results = await append(stub, [[item(f"r-{n}", options_json=options)] for n in range(before)])
            assert all(r.repeated_key for r in results)
            size = (await head(stub)).size
            assert size == before + 2
            ids = set()
            for index in range(size):
                receipt = (await stub.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
                ids.add(audit.verify(receipt).leaf.request_id)
            assert len(ids) == size
    finally:
        audit.kill()
