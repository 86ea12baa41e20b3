"""OcrService on the wire: pages in, answers as they are ready, a bounded number of pages at work."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from affidavit.libs import document, pageimages
from affidavit.libs.errors import AffidavitError
from affidavit.libs.models import ModelFolder
from affidavit.libs.rpc import current_call
from affidavit.libs.telemetry import get_logger
from affidavit.ocr.v1 import ocr_pb2, ocr_pb2_grpc
from affidavit.services.ocr import canary, metrics, pagetext
from affidavit.services.ocr.pipeline import OcrPipeline

BUNDLE = "document"
_log = get_logger("service")
_Context = grpc.aio.ServicerContext[Any, Any]


class OcrService(ocr_pb2_grpc.OcrServiceServicer):
    """Reads pages with one loaded bundle.

    Args:
        folder: where bundles are looked up.
        pages_per_call: pages of one call that may be at work or unread by its caller.
        pages_at_once: pages at work in all.
    """

    def __init__(
        self,
        pipeline: OcrPipeline,
        folder: ModelFolder,
        shared_memory: Path,
        *,
        pages_per_call: int,
        pages_at_once: int,
    ) -> None:
        self._pipeline = pipeline
        self._folder = folder
        self._shared_memory = shared_memory
        self._pages_per_call = pages_per_call
        self._at_once = asyncio.Semaphore(pages_at_once)

    async def canary(self) -> None:
        await canary.check(self._pipeline)

    async def GetBundle(self, request: ocr_pb2.GetBundleRequest, context: _Context) -> ocr_pb2.GetBundleResponse:
        selector = request.bundle or current_call().model_version
        bundle = await asyncio.to_thread(self._folder.bundle, BUNDLE, selector)
        return ocr_pb2.GetBundleResponse(bundle=bundle.message())

    async def RecognizePages(
        self, request_iterator: AsyncIterator[ocr_pb2.RecognizePagesRequest], context: _Context
    ) -> AsyncIterator[ocr_pb2.RecognizePagesResponse]:
        # A page holds its slot until its answer has been sent, so a caller that does not read is not read from either.
        slots = asyncio.Semaphore(self._pages_per_call)
        answers: asyncio.Queue[ocr_pb2.RecognizePagesResponse | None] = asyncio.Queue()

        async def page(request: ocr_pb2.RecognizePagesRequest) -> None:
            async with self._at_once:
                answers.put_nowait(await self._answer(request))

        async def receive() -> None:
            pages: set[asyncio.Task[None]] = set()
            bundle: str | None = None
            try:
                async for request in request_iterator:
                    if bundle is None:
                        bundle = request.bundle
                        await self._expect_served(bundle)
                    elif request.bundle != bundle:
                        raise AffidavitError("INVALID_STREAM", "bundle must be the same for every page of a call")
                    await slots.acquire()
                    task = asyncio.create_task(page(request))
                    pages.add(task)
                    task.add_done_callback(pages.discard)
                await asyncio.gather(*pages)
            finally:
                for task in pages:
                    task.cancel()
                answers.put_nowait(None)

        receiving = asyncio.create_task(receive())
        try:
            while (answer := await answers.get()) is not None:
                yield answer
                slots.release()
            await receiving
        finally:
            # The caller may have left: pages at work are cancelled, and their crops leave the queue.
            receiving.cancel()

    async def _answer(self, request: ocr_pb2.RecognizePagesRequest) -> ocr_pb2.RecognizePagesResponse:
        """One page's answer; what goes wrong with the page stands in it."""
        answer = ocr_pb2.RecognizePagesResponse(sequence=request.sequence, bundle=self._pipeline.bundle.reference)
        image = request.image
        try:
            if not image.page_number or not image.page_width or not image.page_height:
                raise AffidavitError("INVALID_OPTION", "page_number, page_width and page_height must be 1 or more")
            pixels = await asyncio.to_thread(pageimages.pixels, image, self._shared_memory)
            reading = await self._pipeline.read(pixels)
        except AffidavitError as error:
            metrics.pages.labels(error.reason).inc()
            answer.error.reason, answer.error.message = error.reason, error.message
            return answer
        except Exception as error:  # one page's fault of ours must not end the others
            _log.error("page_failed", page=image.page_number, exc_info=error)
            metrics.pages.labels("INTERNAL").inc()
            answer.error.reason = "INTERNAL"
            answer.error.message = f"internal fault; request id {current_call().request_id}"
            return answer
        answer.text.CopyFrom(pagetext.page_text(image, reading))
        answer.result = document.page_result(answer.text)
        answer.steps.extend(pagetext.steps(self._pipeline, image, reading, answer.result))
        timing = reading.timing
        answer.meta.queue_us = round(timing.queue * 1e6)
        answer.meta.detect_us = round(timing.detect * 1e6)
        answer.meta.recognize_us = round(timing.recognize * 1e6)
        answer.meta.line_count = len(reading.lines)
        metrics.pages.labels("UNCERTAIN" if reading.uncertain else "OK").inc()
        metrics.lines.inc(len(reading.lines))
        return answer

    async def _expect_served(self, selector: str) -> None:
        """Raises BUNDLE_NOT_FOUND unless the selector means the bundle that is loaded here."""
        selector = selector or current_call().model_version
        served = self._pipeline.bundle.reference
        if selector in ("", served):
            return
        bundle = await asyncio.to_thread(self._folder.bundle, BUNDLE, selector)
        if bundle.reference != served:
            message = f"{bundle.reference} is not loaded here; there is {served}"
            raise AffidavitError("BUNDLE_NOT_FOUND", message, field="bundle")
