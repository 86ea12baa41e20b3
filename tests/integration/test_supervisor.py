"""The supervisor restarts what crashes, drains on stop, and leaves no orphan, even when it is killed itself."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import grpc
import psutil
import pytest

from affidavit.ingress.v1 import document_pb2 as pb
from affidavit.tools.cli.exits import Exit
from tests.integration.conftest import LETTER, Stack, recognize, running_stack, until

ONE_PAGE = pb.RecognizeOptions(pages=[pb.PageRange(first=3, last=3)])


async def recovered(stack: Stack) -> None:
    """Wait until a document is answered again."""
    async with asyncio.timeout(60), stack.client() as stub:
        while True:
            try:
                await recognize(stub, LETTER.read_bytes(), ONE_PAGE)
            except grpc.aio.AioRpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE, error
                await asyncio.sleep(0.1)
            else:
                return


async def test_a_service_that_crashes_is_started_again_and_answers(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        before = stack.service("ocr").pid
        os.kill(before, signal.SIGKILL)
        await until(lambda: stack.service("ocr").pid != before, "ocr has another pid")
        await recovered(stack)


async def test_with_ocr_gone_and_nobody_to_restart_it_the_call_is_unavailable(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        stack.process.send_signal(signal.SIGSTOP)
        try:
            os.kill(stack.service("ocr").pid, signal.SIGKILL)
            async with stack.client() as stub:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await recognize(stub, LETTER.read_bytes(), timeout=60)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
            assert "ocr" in (caught.value.details() or "")
        finally:
            stack.process.send_signal(signal.SIGCONT)
        await recovered(stack)


async def test_without_the_log_nothing_is_answered(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        stack.process.send_signal(signal.SIGSTOP)
        try:
            os.kill(stack.service("audit").pid, signal.SIGKILL)
            seen: list[str | None] = []
            async with stack.client() as stub:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await recognize(
                        stub, LETTER.read_bytes(), timeout=60, on_message=lambda m: seen.append(m.WhichOneof("message"))
                    )
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
            assert "page" not in seen
        finally:
            stack.process.send_signal(signal.SIGCONT)
        await recovered(stack)


async def test_a_killed_supervisor_leaves_no_orphan(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        family = psutil.Process(stack.process.pid).children(recursive=True)
        assert len(family) >= 4
        stack.process.kill()
        await until(
            lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family), "all have ended"
        )


async def test_stopping_lets_a_running_document_finish(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:

        def on_message(message: pb.RecognizeDocumentResponse) -> None:
            if message.WhichOneof("message") == "page" and message.page.text.page_number == 1:
                stack.process.send_signal(signal.SIGTERM)

        async with stack.client() as stub:
            answer = await recognize(stub, LETTER.read_bytes(), on_message=on_message)
        assert len(answer.pages) == 3
        assert answer.completed.receipt.leaf
        assert await asyncio.to_thread(stack.process.wait, 60) == 0


async def test_calls_go_on_when_one_of_two_ocr_replicas_is_killed(tmp_path: Path) -> None:
    with running_stack(tmp_path, "--replicas", "ocr=2") as stack:
        stack.process.send_signal(signal.SIGSTOP)  # so that the killed one stays dead
        try:
            async with stack.client() as stub:
                calls = [asyncio.create_task(recognize(stub, LETTER.read_bytes())) for _ in range(2)]
                done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                os.kill(stack.service("ocr-2").pid, signal.SIGKILL)
                more = [asyncio.create_task(recognize(stub, LETTER.read_bytes(), ONE_PAGE)) for _ in range(2)]
                answers = await asyncio.gather(*calls, *more)
            assert {len(a.pages) for a in answers[:2]} == {3}
            assert len({a.result for a in answers[:2]}) == 1
            assert done
        finally:
            stack.process.send_signal(signal.SIGCONT)


async def test_a_damaged_log_is_said_once_and_not_tried_again(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        assert stack.stop() == 0
        shutil.rmtree(stack.home / "audit" / "store")
        again = stack.run("up")
    assert again.returncode == Exit.UNAVAILABLE
    message = again.stderr.decode()
    assert "audit did not start" in message
    assert "LOG_DAMAGED" in message
    assert "is missing" in message
    assert "starting again" not in message
    assert message.count("audit ended with exit code 4 and is not started again") == 1


async def test_a_log_that_is_damaged_while_it_runs_is_not_restarted_for_ever(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        shutil.rmtree(stack.home / "audit" / "head")
        os.kill(stack.service("audit").pid, signal.SIGKILL)
        log = tmp_path / "up.log"
        await until(lambda: "audit ended with exit code 4 and is not started again" in log.read_text(), "it is said")
        async with stack.client() as stub:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await recognize(stub, LETTER.read_bytes(), ONE_PAGE, timeout=60)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert stack.run("status").returncode == Exit.UNAVAILABLE
