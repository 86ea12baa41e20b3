"""kill -9 of each service under load: callers get clear errors, the stack recovers, and every page that a client holds has
its leaf."""

import asyncio
import os
import signal
from pathlib import Path

import grpc
import pytest

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.errors import from_rpc_error
from affidavit.libs.evidence.keys import load_public_key
from affidavit.libs.evidence.receipt import verify_receipt
from affidavit.libs.rpc import connect
from tests.integration.conftest import LETTER, Answer, Stack, recognize, running_stack
from tests.integration.test_supervisor import recovered

CALLERS = 4


async def load(stack: Stack, answers: list[Answer], errors: list[grpc.aio.AioRpcError], stop: asyncio.Event) -> None:
    async with stack.client() as stub:
        for _ in range(50):
            if stop.is_set():
                return
            answer = Answer()
            answers.append(answer)
            try:
                await recognize(stub, LETTER.read_bytes(), answer=answer, timeout=120)
            except grpc.aio.AioRpcError as error:
                errors.append(error)
                await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["ocr", "preprocess", "audit", "ingress"])
async def test_every_page_that_a_client_holds_has_its_leaf(tmp_path: Path, victim: str) -> None:
    with running_stack(tmp_path) as stack:
        answers: list[Answer] = []
        errors: list[grpc.aio.AioRpcError] = []
        stop = asyncio.Event()
        callers = [asyncio.create_task(load(stack, answers, errors, stop)) for _ in range(CALLERS)]
        for _ in range(2):
            held = sum(len(a.pages) for a in answers)
            async with asyncio.timeout(120):
                while sum(len(a.pages) for a in answers) < held + 3:
                    await asyncio.sleep(0.05)
            os.kill(stack.service(victim).pid, signal.SIGKILL)
            await recovered(stack)
        stop.set()
        await asyncio.gather(*callers)
        for error in errors:
            reason = from_rpc_error(error, "ingress").reason
            assert error.code() == grpc.StatusCode.UNAVAILABLE, f"{error.code()} {error.details()}"
            assert reason in ("SERVICE_UNAVAILABLE", "LOG_UNAVAILABLE", "DRAINING")
        pages = [page for answer in answers for page in answer.pages]
        assert len(pages) >= 6
        key = load_public_key(stack.log_key)
        async with connect(stack.service("audit").address) as channel:
            stub = audit_pb2_grpc.AuditServiceStub(channel)
            for page in pages:
                verify_receipt(page.receipt, key, result=page.result)
                record = await stub.GetRecord(audit_pb2.GetRecordRequest(index=page.receipt.index))
                assert record.receipt.leaf == page.receipt.leaf
