"""One stream to the audit service for all calls: append a record, get its receipt once it is durable."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Protocol

import grpc

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import AffidavitError, from_rpc_error
from affidavit.libs.telemetry import get_logger

MAX_ITEMS = 64  # in one message
_log = get_logger("appender")


class Appends(Protocol):
    """Where records go: into the log, or into the spool while it is down."""

    async def append(
        self, step: str, draft: evidence_pb2.RecordDraft, *, salt: bytes, content_digest: bytes
    ) -> evidence_pb2.Receipt: ...

    async def close(self) -> None: ...


class Appender:
    """Appends records over one stream, opened at first use and again after it broke.

    When the stream breaks, every append that waits fails with LOG_UNAVAILABLE: its record may or may not be in the log,
    and a repetition under the same key finds out.
    """

    def __init__(
        self, stub: audit_pb2_grpc.AuditServiceStub, *, max_waiting: int = 1024, timeout_s: float = 30.0
    ) -> None:
        self._stub = stub
        self._timeout_s = timeout_s
        self._max_waiting = max_waiting
        self._queue: asyncio.Queue[audit_pb2.AppendItem] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[audit_pb2.AppendResult]] = {}
        self._next = 0
        self._stream: asyncio.Task[None] | None = None

    async def append(
        self, step: str, draft: evidence_pb2.RecordDraft, *, salt: bytes, content_digest: bytes
    ) -> evidence_pb2.Receipt:
        """The record's receipt, once durable. Under a key used before: the receipt of the first time.

        Raises:
            AffidavitError: LOG_UNAVAILABLE, or what the audit service refused it for.
        """
        if self._stream is None or self._stream.done():
            # A queue for each stream: a broken stream's writer may still wait on its own, and would take the next item.
            self._queue = asyncio.Queue(self._max_waiting)
            self._stream = asyncio.create_task(self._run(), name="audit-stream")
        self._next += 1
        number = self._next
        item = audit_pb2.AppendItem(sequence=number, step=step, content_digest=content_digest, draft=draft, salt=salt)
        self._waiting[number] = answer = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._queue.put(item)
                result = await answer
        except TimeoutError:
            raise AffidavitError("LOG_UNAVAILABLE", f"no receipt from the log within {self._timeout_s:.0f} s") from None
        finally:
            self._waiting.pop(number, None)
        if result.WhichOneof("outcome") == "error":
            raise AffidavitError(result.error.reason, result.error.message)
        return result.receipt

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            with suppress(asyncio.CancelledError):
                await self._stream

    async def _run(self) -> None:
        error = AffidavitError("LOG_UNAVAILABLE", "the log closed the stream")
        try:
            async for response in self._stub.AppendRecords(self._requests()):
                for result in response.results:
                    answer = self._waiting.get(result.sequence)
                    if answer is not None and not answer.done():
                        answer.set_result(result)
        except grpc.aio.AioRpcError as broken:
            cause = from_rpc_error(broken, "audit")
            error = AffidavitError("LOG_UNAVAILABLE", f"the evidence log does not answer: {cause.message}")
            _log.warning("audit_stream_broke", code=broken.code().name, details=broken.details())
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(error)

    async def _requests(self) -> AsyncIterator[audit_pb2.AppendRecordsRequest]:
        queue = self._queue
        while True:
            items = [await queue.get()]
            while len(items) < MAX_ITEMS and not queue.empty():
                items.append(queue.get_nowait())
            yield audit_pb2.AppendRecordsRequest(items=items)
