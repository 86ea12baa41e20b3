"""By the operator's choice, answers go on while the log is down; their records follow, in order, and say `spooled`."""

import asyncio
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from PIL import Image

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence.keys import load_public_key
from affidavit.libs.evidence.receipt import VerificationError, verify_receipt
from affidavit.libs.evidence.record import parse_leaf
from affidavit.libs.rpc import connect
from tests.integration.conftest import LETTER, Answer, Stack, recognize, running_stack, until

SPOOL = {"AFFIDAVIT_INGRESS_SPOOL": "true"}
STEPS = ("opened", "page/1", "page/2", "page/3", "closed")


async def final_receipt(stack: Stack, request_id: str, step: str) -> evidence_pb2.Receipt:
    """The record's receipt, once it is in the log."""
    key = audit_pb2.RecordKey(tenant="default", request_id=request_id, step=step)
    async with asyncio.timeout(60), connect(stack.service("audit").address) as channel:
        stub = audit_pb2_grpc.AuditServiceStub(channel)
        while True:
            try:
                return (await stub.GetRecord(audit_pb2.GetRecordRequest(key=key))).receipt
            except grpc.aio.AioRpcError as error:
                assert error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE), error
                await asyncio.sleep(0.1)


async def answered_without_the_log(stack: Stack, request_id: str) -> Answer:
    """An answer given while the supervisor sleeps and audit is dead."""
    stack.process.send_signal(signal.SIGSTOP)
    os.kill(stack.service("audit").pid, signal.SIGKILL)
    async with stack.client() as stub:
        return await recognize(stub, LETTER.read_bytes(), metadata=(("x-request-id", request_id),))


async def in_the_log(stack: Stack, request_id: str, answer: Answer) -> None:
    """Every record of the answer is in the log, in order, says so, and proves the answer."""
    receipts = [await final_receipt(stack, request_id, step) for step in STEPS]
    leaves = [parse_leaf(receipt.leaf) for receipt in receipts]
    assert all(leaf.spooled for leaf in leaves)
    indices = [leaf.index for leaf in leaves]
    assert indices == sorted(indices)
    assert [leaf.parent_index for leaf in leaves] == [None, *[indices[0]] * 4]
    assert [n for part in leaves[-1].children for n in part] == indices[1:4]
    key = load_public_key(stack.log_key)
    verify_receipt(receipts[-1], key, result=answer.result, input=[LETTER.read_bytes()])
    for page, receipt in zip(answer.pages, receipts[1:4], strict=True):
        verify_receipt(receipt, key, result=page.result)


def spooled(stack: Stack) -> Callable[[], bool]:
    return lambda: stack.metrics("ingress")["affidavit_ingress_spooled_records"] > 0


async def test_answers_go_on_without_the_log_and_their_records_follow(tmp_path: Path) -> None:
    with running_stack(tmp_path, environment=SPOOL) as stack:
        async with stack.client() as stub:
            before = await recognize(stub, LETTER.read_bytes(), metadata=(("x-request-id", "before"),))
        assert not before.completed.receipt.HasField("spooled")
        answer = await answered_without_the_log(stack, "during")
        receipts = [answer.completed.receipt, *(page.receipt for page in answer.pages)]
        assert all(r.HasField("spooled") and not r.leaf and not r.checkpoint.note for r in receipts)
        with pytest.raises(VerificationError, match="spooled: the log was down"):
            verify_receipt(answer.completed.receipt, load_public_key(stack.log_key), result=answer.result)
        assert answer.result == before.result
        await until(spooled(stack), "records wait in the spool")
        stack.process.send_signal(signal.SIGCONT)
        await in_the_log(stack, "during", answer)
        await until(lambda: not spooled(stack)(), "the spool is empty")
        assert (stack.home / "spool" / "evidence" / "records").stat().st_size == 0
        async with stack.client() as stub:
            after = await recognize(stub, LETTER.read_bytes(), metadata=(("x-request-id", "after"),))
        assert not after.completed.receipt.HasField("spooled")


async def test_what_waits_survives_a_kill_of_ingress(tmp_path: Path) -> None:
    with running_stack(tmp_path, environment=SPOOL) as stack:
        answer = await answered_without_the_log(stack, "killed")
        os.kill(stack.service("ingress").pid, signal.SIGKILL)
        stack.process.send_signal(signal.SIGCONT)
        await in_the_log(stack, "killed", answer)


async def test_another_document_under_a_used_request_id_is_recorded_all_the_same(tmp_path: Path) -> None:
    with running_stack(tmp_path, environment=SPOOL) as stack:
        one_page = stack.home.parent / "page.png"
        async with stack.client() as stub:
            await recognize(stub, LETTER.read_bytes(), metadata=(("x-request-id", "twice"),))
            stack.process.send_signal(signal.SIGSTOP)
            os.kill(stack.service("audit").pid, signal.SIGKILL)
            one_page.write_bytes(_png())
            answer = await recognize(stub, one_page.read_bytes(), metadata=(("x-request-id", "twice"),))
        assert answer.completed.receipt.HasField("spooled")
        stack.process.send_signal(signal.SIGCONT)
        await until(lambda: not spooled(stack)(), "the spool is empty")
        number = answer.completed.receipt.index - (1 << 63)
        receipt = await final_receipt(stack, "twice", f"closed/spooled/{number}")
        verify_receipt(receipt, load_public_key(stack.log_key), result=answer.result, input=[one_page.read_bytes()])


def _png() -> bytes:
    out = io.BytesIO()
    Image.new("L", (300, 200), 255).save(out, "PNG")
    return out.getvalue()
