"""A worker that a document has taken over can do nothing but fail, and the next document is read."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from affidavit.libs.errors import AffidavitError
from affidavit.services.preprocess.canary import Canary
from affidavit.services.preprocess.document import MAX_FATAL_PAGES, SandboxedDocument
from affidavit.services.preprocess.pool import WorkerPool
from affidavit.services.preprocess.process import WORKER_COMMAND
from affidavit.services.preprocess.protocol import Drawn, Opened, Refused
from affidavit.services.preprocess.settings import PreprocessSettings
from affidavit.services.preprocess.worker.sandbox import FEATURES

HOSTILE_COMMAND = (sys.executable, "-I", str(Path(__file__).parent / "hostile_worker.py"))
SETTINGS = PreprocessSettings(workers=1, page_timeout_s=2.0, queue_timeout_s=20.0)
# What the kernel of an ordinary machine grants. Where it does not, the tests of what it refuses mean nothing.
OPENED = Opened(3, "application/pdf")


class Bytes:
    """A document in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def open_read_only(self) -> int:
        descriptor = os.memfd_create("document")
        os.write(descriptor, self.data)
        try:
            return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        finally:
            os.close(descriptor)


MakePool = Callable[..., Awaitable[WorkerPool]]


@pytest.fixture
async def make_pool() -> AsyncIterator[MakePool]:
    pools: list[WorkerPool] = []

    async def make(command=HOSTILE_COMMAND, settings: PreprocessSettings = SETTINGS) -> WorkerPool:
        pool = WorkerPool(settings, command)
        pools.append(pool)
        await pool.start()
        return pool

    yield make
    for pool in pools:
        await pool.close()
    assert [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE] == []


async def opening(pool: WorkerPool, deed: str, settings: PreprocessSettings = SETTINGS) -> str:
    """What came of opening a document that makes a worker do `deed`: "opened" or the reason why not."""
    document = SandboxedDocument(pool, Bytes(deed.encode()), (), settings)
    try:
        assert await document.open() == OPENED
        return "opened"
    except AffidavitError as error:
        return error.reason
    finally:
        document.close()


async def test_the_sandbox_is_complete_on_this_machine(make_pool: MakePool) -> None:
    pool = await make_pool()
    assert pool.facts.features == FEATURES


@pytest.mark.parametrize(
    "deed",
    [
        "socket",
        "unix-socket",
        "read-file",
        "write-file",
        "list-folder",
        "fork",
        "exec",
        "kill-parent",
        "trace-parent",
        "executable-memory",
        "new-namespace",
        "write-document",
        "cut-area",
    ],
)
async def test_the_kernel_refuses(make_pool: MakePool, deed: str) -> None:
    pool = await make_pool()
    assert await opening(pool, "nothing") == "opened"
    assert await opening(pool, deed) == "DAMAGED_DOCUMENT"


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("allocate", "PARSER_CRASHED"),
        ("lift-limit", "PARSER_CRASHED"),
        ("exit", "PARSER_CRASHED"),
        ("crash", "PARSER_CRASHED"),
        ("nonsense", "PARSER_CRASHED"),
        ("flood", "PARSER_CRASHED"),
        ("loop", "PARSER_TIMEOUT"),
    ],
)
async def test_a_worker_dies_alone_and_the_next_document_is_read(make_pool: MakePool, deed: str, reason: str) -> None:
    pool = await make_pool()
    assert await opening(pool, deed) == reason
    assert await opening(pool, "nothing") == "opened"


async def test_a_page_on_which_the_worker_dies_fails_alone(make_pool: MakePool) -> None:
    pool = await make_pool()
    document = SandboxedDocument(pool, Bytes(b"page-two-dies"), (), SETTINGS)
    await document.open()
    drawn = Drawn(10, 10, 1, 1000, 1000, 0)
    assert await document.draw(1) == drawn
    assert await document.draw(2) == Refused("PARSER_CRASHED")
    assert await document.draw(3) == drawn
    assert bytes(document.pixels(drawn)) == bytes([2]) * 100
    document.close()


async def test_a_document_on_which_the_parser_dies_again_and_again_is_given_up(make_pool: MakePool) -> None:
    pool = await make_pool()
    document = SandboxedDocument(pool, Bytes(b"page-two-dies"), (), SETTINGS)
    await document.open()
    for _ in range(MAX_FATAL_PAGES):
        assert await document.draw(2) == Refused("PARSER_CRASHED")
    with pytest.raises(AffidavitError) as caught:
        await document.draw(2)
    assert caught.value.reason == "PARSER_CRASHED"
    document.close()


async def test_a_document_goes_on_with_another_worker_after_a_pause(make_pool: MakePool) -> None:
    pool = await make_pool()
    document = SandboxedDocument(pool, Bytes(b"nothing"), (), SETTINGS)
    await document.open()
    await document.draw(1)
    document.pause()
    assert await opening(pool, "nothing") == "opened"  # the only worker
    await document.draw(2)
    assert bytes(document.pixels(Drawn(10, 10, 1, 1000, 1000, 0))) == bytes([1]) * 100
    document.close()


async def test_a_document_whose_turn_is_over_lets_the_waiting_one_go_first(make_pool: MakePool) -> None:
    settings = PreprocessSettings(workers=1, turn_s=0.001)
    pool = await make_pool(settings=settings)
    long = SandboxedDocument(pool, Bytes(b"nothing"), (), settings)
    await long.open()
    order: list[str] = []

    async def short() -> None:
        assert await opening(pool, "nothing", settings) == "opened"
        order.append("short")

    waiting = asyncio.create_task(short())
    for _ in range(1000):
        await long.draw(1)
        if order:
            break
    order.append("long")
    await waiting
    assert order == ["short", "long"]
    long.close()


async def test_a_worker_whose_document_was_abandoned_in_mid_work_is_replaced(make_pool: MakePool) -> None:
    pool = await make_pool()
    document = SandboxedDocument(pool, Bytes(b"loop"), (), SETTINGS)
    opening_it = asyncio.create_task(document.open())
    while not (document._worker and document._worker.owes_reply):
        await asyncio.sleep(0)
    worker = psutil.Process(document._worker.pid)
    opening_it.cancel()
    await asyncio.wait([opening_it])
    document.close()
    assert await opening(pool, "nothing") == "opened"
    assert not worker.is_running()


async def test_who_waits_too_long_for_a_worker_is_told_to_come_again(make_pool: MakePool) -> None:
    settings = PreprocessSettings(workers=1, queue_timeout_s=0.05)
    pool = await make_pool()
    pool._settings = settings
    held = await pool.take()
    assert await opening(pool, "nothing") == "QUEUE_FULL"
    pool.give_back(held)


async def test_workers_are_replaced_after_their_share_of_documents(make_pool: MakePool) -> None:
    pool = await make_pool(settings=PreprocessSettings(workers=1, worker_documents=2))
    seen: list[int] = []
    for _ in range(4):
        document = SandboxedDocument(pool, Bytes(b"nothing"), (), SETTINGS)
        await document.open()
        assert document._worker is not None
        seen.append(document._worker.pid)
        document.close()
    assert seen[0] == seen[1] != seen[2] == seen[3]


async def test_a_worker_that_died_idle_is_not_lent(make_pool: MakePool) -> None:
    pool = await make_pool()
    while not pool._idle:
        await asyncio.sleep(0)
    pool._idle[0].kill()
    assert await opening(pool, "nothing") == "opened"


async def test_the_canary_knows_its_page_and_notices_a_wrong_one(make_pool: MakePool) -> None:
    real = await make_pool(WORKER_COMMAND)
    await Canary(real, SETTINGS).draw()
    hostile = await make_pool()
    with pytest.raises((RuntimeError, AffidavitError)):
        await Canary(hostile, SETTINGS).draw()
