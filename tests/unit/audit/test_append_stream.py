"""One stream is bounded on both sides, and answers everything that it took."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from affidavit.audit.v1 import audit_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.services.audit import append_stream
from affidavit.services.audit.append_stream import AppendStream
from affidavit.services.audit.appender import Appender
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import LogFolders
from tests.contract.audit_process import item

DEADLINE_S = 30


@pytest.fixture
async def appender(tmp_path) -> AsyncIterator[Appender]:
    log = EvidenceLog(LogFolders.below(tmp_path / "home"))
    appender = Appender(log, max_batch=8, queue_bound=16, moved=lambda: None)
    yield appender
    await appender.close()
    log.close()


def serialised(*items: audit_pb2.AppendItem) -> bytes:
    return audit_pb2.AppendRecordsRequest(items=items).SerializeToString()


def message(number: int) -> bytes:
    return serialised(item(f"r-{number}", sequence=number))


async def parsed(responses: AsyncIterator[bytes]) -> AsyncIterator[audit_pb2.AppendRecordsResponse]:
    async for response in responses:
        yield audit_pb2.AppendRecordsResponse.FromString(response)


async def test_a_client_that_reads_no_answers_is_read_no_further(appender, monkeypatch) -> None:
    monkeypatch.setattr(append_stream, "MAX_UNDER_WAY", 32)
    taken: list[int] = []

    async def requests() -> AsyncIterator[bytes]:
        for number in range(500):
            taken.append(number)
            yield message(number)

    responses = parsed(AppendStream(appender, asyncio.Event()).responses(requests()))
    async with asyncio.timeout(DEADLINE_S):
        first = await anext(responses)  # and then no more is asked for
        while len(taken) < 33:  # the 33rd is read and waits for room
            await asyncio.sleep(0)
        await appender.on_writer(lambda: None)  # whatever was queued is committed
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(taken) == 33
        answered = [r.sequence for r in first.results] + [r.sequence async for x in responses for r in x.results]
    assert sorted(answered) == list(range(500))
    assert len(taken) == 500


async def test_a_full_queue_makes_streams_wait_and_refuses_nothing(appender) -> None:
    async def requests(stream: int) -> AsyncIterator[bytes]:
        items = [item(f"{stream}-{n}", sequence=n) for n in range(100)]
        yield serialised(*items)

    async def answers(stream: int) -> list[audit_pb2.AppendResult]:
        responses = parsed(AppendStream(appender, asyncio.Event()).responses(requests(stream)))
        return [r async for x in responses for r in x.results]

    async with asyncio.timeout(DEADLINE_S):
        results = await asyncio.gather(*(answers(n) for n in range(5)))
    assert all(r.WhichOneof("outcome") == "receipt" for stream in results for r in stream)
    assert [sorted(r.sequence for r in stream) for stream in results] == [list(range(100))] * 5


async def test_draining_answers_what_was_taken_and_then_says_so(appender) -> None:
    draining = asyncio.Event()
    never = asyncio.Event()

    async def requests() -> AsyncIterator[bytes]:
        yield message(0)
        draining.set()
        await never.wait()

    responses = parsed(AppendStream(appender, draining).responses(requests()))
    async with asyncio.timeout(DEADLINE_S):
        first = await anext(responses)
        assert [r.sequence for r in first.results] == [0]
        with pytest.raises(AffidavitError) as caught:
            await anext(responses)
    assert caught.value.reason == "DRAINING"


async def test_large_answers_are_split_over_messages(appender) -> None:
    options = b'{"note":"' + b"x" * 30_000 + b'"}'

    async def requests() -> AsyncIterator[bytes]:
        yield serialised(*(item(f"r-{n}", sequence=n, options_json=options) for n in range(100)))

    async with asyncio.timeout(DEADLINE_S):
        responses = [r async for r in parsed(AppendStream(appender, asyncio.Event()).responses(requests()))]
    assert sorted(r.sequence for x in responses for r in x.results) == list(range(100))
    assert max(r.ByteSize() for r in responses) < append_stream.MAX_RESPONSE_BYTES + 70_000
