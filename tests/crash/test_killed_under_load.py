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
from tests.integration.test_supervisor import ONE_PAGE, recovered

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


async def until_answered(stack: Stack, request_id: str, seen: dict[tuple[str, int], bytes], tries: list[str]) -> Answer:
    """Call with one request id until a call ends well; a page that arrives again must be the same record."""
    while True:
        answer = Answer()
        tries.append(request_id)
        try:
            async with stack.client() as stub:
                metadata = (("x-request-id", request_id),)
                await recognize(stub, LETTER.read_bytes(), ONE_PAGE, metadata=metadata, answer=answer, timeout=120)
        except (grpc.aio.AioRpcError, AssertionError) as error:
            if isinstance(error, grpc.aio.AioRpcError):
                assert error.code() == grpc.StatusCode.UNAVAILABLE, f"{error.code()} {error.details()}"
            await asyncio.sleep(0.2)
        for page in answer.pages:
            first = seen.setdefault((request_id, page.text.page_number), page.receipt.leaf)
            assert first == page.receipt.leaf, f"page {page.text.page_number} of {request_id} has two records"
        if answer.messages and answer.messages[-1].WhichOneof("message") == "completed":
            return answer


@pytest.mark.slow
async def test_callers_that_come_again_with_their_request_id_have_each_record_once(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        seen: dict[tuple[str, int], bytes] = {}
        tries: list[str] = []
        await until_answered(stack, "calm", seen, tries)
        ids = [f"r-{n}" for n in range(9)]
        for round_, victim in enumerate(["audit", "ingress", "audit"]):
            calls = [
                asyncio.create_task(until_answered(stack, name, seen, tries))
                for name in ids[3 * round_ : 3 * round_ + 3]
            ]
            pages = len(seen)
            async with asyncio.timeout(120):
                while len(seen) < pages + 1:
                    await asyncio.sleep(0.02)
            os.kill(stack.service(victim).pid, signal.SIGKILL)
            async with asyncio.timeout(240):
                await asyncio.gather(*calls)
        assert len(tries) > len(ids) + 1, "no call was ended by a kill: nothing came again"
        key = load_public_key(stack.log_key)
        for name in ["calm", *ids]:
            again = await until_answered(stack, name, seen, tries)
            for page in again.pages:
                verify_receipt(page.receipt, key, result=page.result)
        async with connect(stack.service("audit").address) as channel:
            stub = audit_pb2_grpc.AuditServiceStub(channel)

            async def records(name: str) -> int:
                request = audit_pb2.ListRecordsRequest(request_id=name)
                return sum([len(answer.records) async for answer in stub.ListRecords(request)])

            calm = await records("calm")
            assert calm >= 2  # the page and the document at least
            assert {name: await records(name) for name in ids} == dict.fromkeys(ids, calm)
        async with stack.client() as stub:
            for name in ids:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await recognize(stub, LETTER.read_bytes() + b"\n", ONE_PAGE, metadata=(("x-request-id", name),))
                assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS
