"""Sends one document's page images to ocr and hands back each page's answer, over a replica's death if need be."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
from prometheus_client import Counter

from affidavit.document.v1 import document_pb2
from affidavit.libs.errors import AffidavitError, from_rpc_error
from affidavit.libs.telemetry import get_logger
from affidavit.ocr.v1 import ocr_pb2, ocr_pb2_grpc
from affidavit.services.ingress.peers import RetryBudget, backoff_s

MAX_REOPENS = 4  # in a row, without an answer between them
_log = get_logger("page_reader")
_reopened = Counter("affidavit_ingress_ocr_streams_reopened_total", "Streams to ocr opened again after one broke")


class PageReader:
    """One stream to ocr for one document.

    When the stream breaks with UNAVAILABLE, it is opened again (to another replica, if there is one) and the pages
    without an answer are sent again, within the retry budget; otherwise they fail with the stream's error. An answer is
    the same whoever gives it, so a page that was read twice is no harm.
    """

    def __init__(
        self, stub: ocr_pb2_grpc.OcrServiceStub, bundle: str, budget: RetryBudget, timeout_s: float | None
    ) -> None:
        self._stub = stub
        self._bundle = bundle
        self._budget = budget
        self._timeout_s = timeout_s
        self._waiting: dict[int, tuple[document_pb2.PageImage, asyncio.Future[ocr_pb2.RecognizePagesResponse]]] = {}
        self._queue: asyncio.Queue[ocr_pb2.RecognizePagesRequest] = asyncio.Queue()  # bounded by look_ahead
        self._stream: asyncio.Task[None] | None = None
        self._failure: AffidavitError | None = None
        self._next = 0

    async def read(self, image: document_pb2.PageImage) -> ocr_pb2.RecognizePagesResponse:
        """The page's answer, which may be an error of this page alone.

        Raises:
            AffidavitError: the stream's error, when ocr cannot be reached.
        """
        if self._failure is not None:
            raise self._failure
        if self._stream is None:
            self._stream = asyncio.create_task(self._run(), name="ocr-stream")
        self._next += 1
        number = self._next
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = (image, answer)
        self._queue.put_nowait(self._request(number))
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            with suppress(asyncio.CancelledError):
                await self._stream

    def _request(self, number: int) -> ocr_pb2.RecognizePagesRequest:
        return ocr_pb2.RecognizePagesRequest(sequence=number, image=self._waiting[number][0], bundle=self._bundle)

    async def _run(self) -> None:
        reopens = 0
        while True:
            self._budget.earn()
            call = self._stub.RecognizePages(self._requests(), timeout=self._timeout_s)
            try:
                async for response in call:
                    reopens = 0
                    if waiting := self._waiting.get(response.sequence):
                        _, answer = waiting
                        if not answer.done():
                            answer.set_result(response)
                error = AffidavitError("SERVICE_UNAVAILABLE", "ocr ended the stream")
            except grpc.aio.AioRpcError as broken:
                error = from_rpc_error(broken, "ocr")
            finally:
                call.cancel()
            if error.code is not grpc.StatusCode.UNAVAILABLE or reopens >= MAX_REOPENS or not self._budget.spend():
                self._fail(error)
                return
            reopens += 1
            _reopened.inc()
            _log.warning("ocr_stream_broke", reason=error.reason, message=error.message, reopen=reopens)
            await asyncio.sleep(backoff_s(reopens))
            self._queue = asyncio.Queue()
            for number, (_, answer) in sorted(self._waiting.items()):
                if not answer.done():
                    self._queue.put_nowait(self._request(number))

    def _fail(self, error: AffidavitError) -> None:
        self._failure = error
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)

    async def _requests(self) -> AsyncIterator[ocr_pb2.RecognizePagesRequest]:
        queue = self._queue  # this stream's own: a broken stream must not take the next one's pages
        while True:
            yield await queue.get()
