"""The stream keeps its contract, whatever the caller does, and a call leaves nothing behind."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator

import grpc
import psutil
import pytest

from affidavit.libs.errors import from_rpc_error
from affidavit.libs.pageimages import pixels
from affidavit.preprocess.v1 import preprocess_pb2 as pb
from tests.contract.made_pdfs import Page, pdf, text
from tests.contract.preprocess_process import SHARED, Caller, PreprocessProcess, render, serving

DRAWN = "affidavit_preprocess_page_duration_seconds_count"
DOCUMENT = pdf([Page(text(f"page {number}")) for number in range(1, 6)])
SLOW = pdf([Page(b"0 0 200 100 re f\n" * 400_000)])


@pytest.fixture(scope="module")
def service() -> Iterator[PreprocessProcess]:
    with serving("--upload-stall-s", "1", "--max-upload-bytes", str(8 << 20), "--workers", "2") as process:
        yield process


@pytest.fixture
async def caller(service: PreprocessProcess) -> AsyncIterator[Caller]:
    async with service.channel() as channel:
        yield Caller(channel)


async def reason_of(caller: Caller) -> str:
    """Read to the end, which is an error; its reason."""
    try:
        async with asyncio.timeout(60):
            while await caller.call.read() is not grpc.aio.EOF:
                pass
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error, "preprocess").reason
    return "none"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def kind(answer: pb.RenderDocumentResponse) -> str:
    return answer.WhichOneof("message") or ""


async def test_pages_come_on_demand_and_leases_end_with_their_release(
    service: PreprocessProcess, caller: Caller
) -> None:
    caller.send(options=pb.RenderOptions(look_ahead=2))
    caller.upload(DOCUMENT)
    assert (await caller.answer()).opened.page_count == 5
    first, second = await caller.answer(), await caller.answer()
    third = asyncio.create_task(caller.answer())
    assert (first.page.image.page_number, second.page.image.page_number) == (1, 2)
    # Each page's lease is there until it is released; the third page waits for that.
    assert sorted(service.leases()) == sorted(page.page.image.handle.name for page in (first, second))
    assert not third.done()
    caller.send(release=pb.PageRelease(page_number=1))
    assert (await third).page.image.page_number == 3
    assert first.page.image.handle.name not in service.leases()
    for number in (4, 5):
        caller.send(release=pb.PageRelease(page_number=number - 2))
        assert (await caller.answer()).page.image.page_number == number
    for number in (4, 5):
        caller.send(release=pb.PageRelease(page_number=number))
    assert kind(await caller.answer()) == "finished"
    assert service.leases() == []
    assert service.spooled() == 0


async def test_a_page_is_not_drawn_before_there_is_room_for_it() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        metrics = f"127.0.0.1:{free.getsockname()[1]}"
    with serving("--metrics-address", metrics, "--canary-interval-s", "3600", "--workers", "1") as service:

        def drawn() -> int:
            page = urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10).read().decode()
            (line,) = (line for line in page.splitlines() if line.startswith(f"{DRAWN} "))
            return int(float(line.split()[1]))

        canary = drawn()
        async with service.channel() as channel:
            caller = Caller(channel)
            caller.send(options=pb.RenderOptions(look_ahead=2))
            caller.upload(DOCUMENT)
            await caller.answer()
            assert (await caller.answer()).page.image.page_number == 1
            await caller.answer()
            # The only worker goes to another document and back; had it been asked for page 3, that would be counted.
            assert (await render(service, DOCUMENT)).finished
            assert drawn() == canary + 2 + 5
            caller.send(release=pb.PageRelease(page_number=1))
            await caller.answer()
            assert drawn() == canary + 3 + 5
            caller.call.cancel()


async def test_the_call_stays_open_until_the_last_lease_is_released(service: PreprocessProcess, caller: Caller) -> None:
    caller.send(options=pb.RenderOptions(look_ahead=16))
    caller.upload(DOCUMENT)
    await caller.answer()
    pages = [(await caller.answer()).page.image for _ in range(5)]
    end = asyncio.create_task(caller.answer())
    for image in pages:
        assert not end.done()
        assert pixels(image, service.shared_memory).any()
        caller.send(release=pb.PageRelease(page_number=image.page_number))
    assert kind(await end) == "finished"


async def test_a_page_that_cannot_be_opened_comes_again_inline_and_so_do_later_ones(
    service: PreprocessProcess, caller: Caller
) -> None:
    caller.send(options=pb.RenderOptions(look_ahead=2))
    caller.upload(DOCUMENT)
    await caller.answer()
    first, second = (await caller.answer()).page, (await caller.answer()).page
    (service.shared_memory / first.image.handle.name).unlink()
    caller.send(resend=pb.PageResend(page_number=1))
    again = (await caller.answer()).page
    assert again.image.page_number == 1
    assert again.image.WhichOneof("data") == "inline"
    assert (again.image.sha256, again.step) == (first.image.sha256, first.step)
    assert pixels(again.image, service.shared_memory).any()
    caller.send(release=pb.PageRelease(page_number=1))
    third = (await caller.answer()).page
    assert third.image.WhichOneof("data") == "inline"
    caller.send(resend=pb.PageResend(page_number=2))
    assert (await caller.answer()).page.image.sha256 == second.image.sha256
    assert service.leases() == []
    caller.call.cancel()


async def test_pages_are_the_same_inline(service: PreprocessProcess) -> None:
    by_handle = await render(service, DOCUMENT)
    inline = await render(service, DOCUMENT, inline_only=True)
    assert [page.image.sha256 for page in inline.pages] == [page.image.sha256 for page in by_handle.pages]
    assert [page.step for page in inline.pages] == [page.step for page in by_handle.pages]


async def test_a_caller_that_says_no_more_gets_the_rest_inline(service: PreprocessProcess, caller: Caller) -> None:
    caller.send(options=pb.RenderOptions(inline_only=True))
    caller.upload(DOCUMENT)
    caller.half_close()
    assert [kind(await caller.answer()) for _ in range(7)] == ["opened", *["page"] * 5, "finished"]


@pytest.mark.parametrize(
    "shared_memory",
    [pytest.param("/proc/affidavit", id="unwritable"), pytest.param("/dev/null/affidavit", id="missing")],
)
async def test_without_shared_memory_pages_come_inline_with_the_same_hash(
    service: PreprocessProcess, shared_memory: str
) -> None:
    expected = await render(service, DOCUMENT)
    with serving("--workers", "1", shared_memory=shared_memory) as without:
        rendering = await render(without, DOCUMENT)
        assert [page.image.sha256 for page in rendering.pages] == [page.image.sha256 for page in expected.pages]


async def test_full_shared_memory_and_a_full_disk_are_noticed_and_left_clean(service: PreprocessProcess) -> None:
    expected = await render(service, DOCUMENT)
    with serving("--workers", "1") as full:
        # The kernel refuses to let a file of this process grow beyond a limit, as a full filesystem does.
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        async with full.channel() as channel:
            caller = Caller(channel)
            caller.send(options=pb.RenderOptions())
            caller.upload(DOCUMENT)
            await caller.answer()
            page = (await caller.answer()).page
            assert page.image.WhichOneof("data") == "inline"
            assert page.image.sha256 == expected.pages[0].image.sha256
            caller.call.cancel()
        assert (await render(full, bytes(1 << 20))).reason == "STORAGE_FULL"
        assert full.leases() == []
        await until(lambda: full.spooled() == 0)
        assert (await render(full, DOCUMENT)).finished


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([{"chunk": b"x"}], "INVALID_STREAM"),
        ([{"upload_end": pb.UploadEnd()}], "INVALID_STREAM"),
        ([{"options": pb.RenderOptions()}, {"options": pb.RenderOptions()}], "INVALID_STREAM"),
        ([{"options": pb.RenderOptions()}, {"release": pb.PageRelease(page_number=1)}], "INVALID_STREAM"),
        ([{"options": pb.RenderOptions()}, {"chunk": b"x"}, None], "INVALID_STREAM"),
        ([None], "INVALID_STREAM"),
        ([{"options": pb.RenderOptions()}, {"chunk": b""}], "INVALID_OPTION"),
        ([{"options": pb.RenderOptions()}, {"chunk": bytes((1 << 20) + 1)}], "INVALID_OPTION"),
        ([{"options": pb.RenderOptions(look_ahead=17)}], "INVALID_OPTION"),
        ([{"options": pb.RenderOptions(password="x" * 1000)}], "INVALID_OPTION"),
        ([{"options": pb.RenderOptions(pages=[pb.PageRange(first=0)])}], "INVALID_OPTION"),
        ([{"options": pb.RenderOptions()}, {"upload_end": pb.UploadEnd()}], "EMPTY_INPUT"),
        ([{"options": pb.RenderOptions()}, *[{"chunk": bytes(1 << 20)}] * 9], "UPLOAD_TOO_LARGE"),
        ([{"options": pb.RenderOptions()}, {"chunk": b"%PDF-"}], "UPLOAD_STALLED"),
        ([], "UPLOAD_STALLED"),
    ],
)
async def test_a_stream_out_of_order_is_refused_and_leaves_nothing(
    service: PreprocessProcess, caller: Caller, messages: list[dict[str, object] | None], reason: str
) -> None:
    for message in messages:
        caller.send(**message) if message else caller.half_close()
    assert await reason_of(caller) == reason
    await until(lambda: service.spooled() == 0)


@pytest.mark.parametrize(
    "message",
    [
        {"release": pb.PageRelease(page_number=9)},
        {"resend": pb.PageResend(page_number=9)},
        {"chunk": b"more"},
        {"upload_end": pb.UploadEnd()},
        {"options": pb.RenderOptions()},
    ],
)
async def test_what_makes_no_sense_after_the_upload_is_refused(
    service: PreprocessProcess, caller: Caller, message: dict[str, object]
) -> None:
    caller.send(options=pb.RenderOptions())
    caller.upload(DOCUMENT)
    caller.send(**message)
    assert await reason_of(caller) == "INVALID_STREAM"
    assert service.leases() == []


async def test_a_caller_that_keeps_its_pages_too_long_is_let_go() -> None:
    with serving("--release-timeout-s", "0.2", "--workers", "1") as service:
        async with service.channel() as channel:
            caller = Caller(channel)
            caller.send(options=pb.RenderOptions())
            caller.upload(DOCUMENT)
            assert await reason_of(caller) == "UPLOAD_STALLED"
        assert service.leases() == []


@pytest.mark.parametrize("when", ["uploading", "opened", "holding pages", "drawing"])
async def test_a_caller_that_is_gone_leaves_no_lease_no_upload_and_no_zombie(
    service: PreprocessProcess, caller: Caller, when: str
) -> None:
    caller.send(options=pb.RenderOptions(look_ahead=3))
    if when == "uploading":
        caller.send(chunk=bytes(1 << 20))
        await until(lambda: service.spooled() == 1)
    else:
        caller.upload(SLOW if when == "drawing" else DOCUMENT)
        await caller.answer()
    if when == "holding pages":
        for _ in range(3):
            await caller.answer()
        assert len(service.leases()) == 3
    if when == "drawing":
        await until(lambda: any(worker.cpu_percent(0.05) > 20 for worker in service.workers()))
    caller.call.cancel()
    await until(lambda: service.spooled() == 0 and service.leases() == [])
    assert (await render(service, DOCUMENT)).finished
    await until(lambda: len(service.workers()) == 2)
    assert all(worker.status() != psutil.STATUS_ZOMBIE for worker in service.workers())


async def test_a_slow_caller_slows_only_itself() -> None:
    with serving("--workers", "1") as service:
        async with service.channel() as channel:
            slow = Caller(channel)
            slow.send(options=pb.RenderOptions(look_ahead=1))
            slow.upload(DOCUMENT)
            await slow.answer()
            await slow.answer()
            # It holds its page. The only worker reads other documents meanwhile, and comes back when it goes on.
            for _ in range(3):
                assert (await render(service, DOCUMENT)).finished
            slow.send(release=pb.PageRelease(page_number=1))
            assert (await slow.answer()).page.image.page_number == 2
            slow.call.cancel()


async def test_more_documents_than_allowed_are_refused_at_once_and_may_come_again() -> None:
    with serving("--max-documents", "1", "--workers", "1") as service:
        async with service.channel() as channel:
            first = Caller(channel)
            first.send(options=pb.RenderOptions())
            first.send(chunk=bytes(1 << 20))
            await until(lambda: service.spooled() == 1)
            second = await render(service, DOCUMENT)
            assert second.reason == "QUEUE_FULL"
            assert second.error is not None
            assert second.error.retry_after_s is not None
            first.call.cancel()
            await until(lambda: service.spooled() == 0)
            assert (await render(service, DOCUMENT)).finished


async def test_many_callers_at_once_each_get_their_own_pages(service: PreprocessProcess) -> None:
    documents = [pdf([Page(text(f"{caller} {page}")) for page in range(4)]) for caller in range(8)]
    alone = [await render(service, document) for document in documents]
    together = await asyncio.gather(*(render(service, document) for document in documents))
    hashes = [[page.image.sha256 for page in rendering.pages] for rendering in alone]
    assert [[page.image.sha256 for page in rendering.pages] for rendering in together] == hashes
    assert len({digest for pages in hashes for digest in pages}) == 32


async def test_a_worker_that_is_killed_from_outside_fails_nothing_but_its_page() -> None:
    slow = pdf([Page(text("one")), Page(b"0 0 200 100 re f\n" * 400_000), Page(text("three"))])
    with serving("--workers", "1") as service:
        rendering = asyncio.create_task(render(service, slow))
        for _ in range(2):  # a page is tried once more when its worker dies after others
            await until(lambda: any(worker.cpu_percent(0.05) > 50 for worker in service.workers()))
            await until(lambda: any(worker.cpu_times().user > 0.5 for worker in service.workers()))
            for worker in service.workers():
                worker.kill()
                await until(lambda killed=worker: not killed.is_running())
        answer = await rendering
        assert [page.image.page_number for page in answer.pages] == [1, 3]
        assert [(failure.page_number, failure.reason) for failure in answer.failures] == [(2, "PARSER_CRASHED")]


async def test_a_killed_service_takes_its_workers_along_and_the_next_one_clears_after_it() -> None:
    with serving("--workers", "2") as service:
        async with service.channel() as channel:
            caller = Caller(channel)
            caller.send(options=pb.RenderOptions())
            caller.upload(DOCUMENT)
            for _ in range(3):
                await caller.answer()
            assert len(service.leases()) == 2
            workers = service.workers()
            assert len(workers) == 2
            os.kill(service.process.pid, signal.SIGKILL)
            service.process.wait(10)
            await until(lambda: not any(worker.is_running() for worker in workers))
            assert await reason_of(caller) == "SERVICE_UNAVAILABLE"
        with serving("--workers", "1", shared_memory=str(service.shared_memory)) as again:
            assert again.leases() == []
            assert (await render(again, DOCUMENT)).finished


async def test_a_stopping_service_lets_running_calls_end_and_leaves_no_process() -> None:
    with serving("--workers", "2") as service:
        async with service.channel() as channel:
            caller = Caller(channel)
            caller.send(options=pb.RenderOptions(look_ahead=1))
            caller.upload(DOCUMENT)
            await caller.answer()
            workers = service.workers()
            service.process.terminate()
            for number in range(1, 6):
                assert (await caller.answer()).page.image.page_number == number
                caller.send(release=pb.PageRelease(page_number=number))
            assert kind(await caller.answer()) == "finished"
            caller.half_close()
        assert service.process.wait(30) == 0
        assert not any(worker.is_running() for worker in workers)


async def test_nothing_unexpected_is_logged(service: PreprocessProcess) -> None:
    known = {"listening", "readiness", "call_refused", "worker_replaced", "page_failed"}
    lines = [json.loads(line) for line in service.log.read_text("utf-8").splitlines()]
    assert [line for line in lines if line["event"] not in known] == []


async def test_a_password_is_in_no_log(service: PreprocessProcess) -> None:
    secret = "correct horse battery staple"
    encrypted = SHARED / "pdfs" / "pdfminer_aes-256.pdf"
    assert (await render(service, encrypted, password=secret)).reason == "PASSWORD_WRONG"
    assert (await render(service, DOCUMENT, password=secret)).finished
    assert secret not in service.log.read_text("utf-8")


def test_a_setting_out_of_range_ends_the_start_with_a_clear_line() -> None:
    command = [sys.executable, "-m", "affidavit.services.preprocess", "--max-pages", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "max_pages (--max-pages)" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
