"""PageService: upload ▶ open ▶ draw on demand ▶ answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from affidavit.document.v1 import document_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.pageimages import LeaseFolder
from affidavit.libs.telemetry import get_logger
from affidavit.preprocess.v1 import preprocess_pb2, preprocess_pb2_grpc
from affidavit.services.preprocess import metrics
from affidavit.services.preprocess.caller import Caller
from affidavit.services.preprocess.canary import Canary
from affidavit.services.preprocess.document import SandboxedDocument
from affidavit.services.preprocess.evidence import Evidence
from affidavit.services.preprocess.passwords import password_candidates
from affidavit.services.preprocess.pool import WorkerPool
from affidavit.services.preprocess.protocol import Drawn, Opened, Refused
from affidavit.services.preprocess.reasons import page_failure
from affidavit.services.preprocess.selection import SelectedPages, Selection
from affidavit.services.preprocess.settings import PreprocessSettings
from affidavit.services.preprocess.spool import SpoolFolder, Upload
from affidavit.services.preprocess.version import PREPROCESS_VERSION, SOFTWARE
from affidavit.services.preprocess.window import Window

_log = get_logger("pages")
_Context = grpc.aio.ServicerContext[Any, Any]
_Response = preprocess_pb2.RenderDocumentResponse

_FORMATS = {1: document_pb2.PIXEL_FORMAT_GRAY8, 3: document_pb2.PIXEL_FORMAT_BGR24}
# A caller that has held all its pages for so long gives its worker to others meanwhile.
_PAUSE_AFTER_S = 0.5


class PageService(preprocess_pb2_grpc.PageServiceServicer):
    """Draws documents' pages."""

    def __init__(self, settings: PreprocessSettings, pool: WorkerPool, spool: SpoolFolder, leases: LeaseFolder) -> None:
        self._settings = settings
        self._pool = pool
        self._spool = spool
        self._leases = leases
        self._documents = 0
        self._canary = Canary(pool, settings)

    async def RenderDocument(
        self, request_iterator: AsyncIterator[preprocess_pb2.RenderDocumentRequest], context: _Context
    ) -> AsyncIterator[_Response]:
        if self._documents >= self._settings.max_documents:
            message = f"{self._documents} documents are being read already; try again later"
            raise AffidavitError("QUEUE_FULL", message)
        self._documents += 1
        metrics.documents.set(self._documents)
        try:
            async for response in self._render(Caller(aiter(request_iterator), self._settings.upload_stall_s)):
                yield response
        except AffidavitError as error:
            metrics.failures.labels(error.reason).inc()
            raise
        finally:
            self._documents -= 1
            metrics.documents.set(self._documents)

    async def GetServiceInfo(
        self, request: preprocess_pb2.GetServiceInfoRequest, context: _Context
    ) -> preprocess_pb2.GetServiceInfoResponse:
        return preprocess_pb2.GetServiceInfoResponse(info=self._info())

    async def canary(self) -> None:
        """Draw a page of our own through a real worker; raises when it comes out wrong."""
        await self._canary.draw()

    async def close(self) -> None:
        await self._pool.close()
        self._leases.close()

    async def _render(self, caller: Caller) -> AsyncIterator[_Response]:
        options = await caller.options()
        selection = Selection(options.pages)
        passwords = password_candidates(options.password)
        window = Window(self._leases, options.look_ahead, options.inline_only)
        with self._spool.upload(self._settings.max_upload_bytes) as upload:
            await caller.upload(upload)
            document = SandboxedDocument(self._pool, upload, passwords, self._settings)
            listening: asyncio.Task[None] | None = None
            try:
                opened = await document.open()
                pages = self._select(selection, opened)
                listening = asyncio.create_task(caller.listen(window))
                yield _Response(opened=_opened(opened, upload, len(pages), self._info()))
                evidence = Evidence(self._pool.facts, opened.media_type, upload.sha256)
                async for response in self._draw_all(pages, document, window, evidence):
                    yield response
            finally:
                # Nothing here waits: it must also run when the call is cancelled.
                if listening:
                    listening.cancel()
                document.close()
                window.close()
        yield _Response(finished=preprocess_pb2.RenderFinished())

    def _info(self) -> preprocess_pb2.PreprocessInfo:
        facts = self._pool.facts
        return preprocess_pb2.PreprocessInfo(
            software=SOFTWARE, version=PREPROCESS_VERSION, pdfium=facts.pdfium, pillow=facts.pillow
        )

    def _select(self, selection: Selection, opened: Opened) -> SelectedPages:
        if opened.page_count > self._settings.max_pages:
            message = f"the document has {opened.page_count} pages; at most {self._settings.max_pages} are read"
            raise AffidavitError("TOO_MANY_PAGES", message)
        return selection.of(opened.page_count)

    async def _draw_all(
        self, pages: SelectedPages, document: SandboxedDocument, window: Window, evidence: Evidence
    ) -> AsyncIterator[_Response]:
        given_up: AffidavitError | None = None
        for number in pages:
            async for response in self._wait(window.has_room, window, document):
                yield response
            try:
                drawn = await document.draw(number)
            except AffidavitError as error:
                given_up = error
                break
            if isinstance(drawn, Refused):
                window.skip(number)
                yield _Response(failure=_failure(number, drawn.reason, evidence))
                continue
            page = preprocess_pb2.RenderedPage(image=_image(number, drawn))
            await window.add(page, document.pixels(drawn))
            page.step.CopyFrom(evidence.step(page.image.sha256))
            metrics.pages.inc()
            yield _Response(page=page)
        document.pause()
        # A lease lives no longer than the call: the call stays open until the caller has read what it holds, also when
        # the rest of the document is given up.
        async for response in self._wait(window.is_empty, window, document):
            yield response
        if given_up:
            raise given_up

    async def _wait(
        self, ready: Callable[[], bool], window: Window, document: SandboxedDocument
    ) -> AsyncIterator[_Response]:
        """Until `ready`, send again what the caller asks for."""
        while True:
            while page := window.next_resend():
                yield _Response(page=page)
            if ready():
                return
            if await window.changed(_PAUSE_AFTER_S):
                continue
            document.pause()
            if not await window.changed(self._settings.release_timeout_s):
                message = f"no page was released for {self._settings.release_timeout_s:g} s"
                raise AffidavitError("UPLOAD_STALLED", message)


def _opened(
    opened: Opened, upload: Upload, selected_count: int, info: preprocess_pb2.PreprocessInfo
) -> preprocess_pb2.DocumentOpened:
    return preprocess_pb2.DocumentOpened(
        page_count=opened.page_count,
        media_type=opened.media_type,
        sha256=upload.sha256,
        size=upload.size,
        selected_count=selected_count,
        info=info,
    )


def _image(number: int, drawn: Drawn) -> document_pb2.PageImage:
    """The page's image, still without pixels and hash."""
    return document_pb2.PageImage(
        page_number=number,
        width=drawn.width,
        height=drawn.height,
        format=_FORMATS[drawn.channels],
        page_width=drawn.page_width,
        page_height=drawn.page_height,
        pixel_scale=drawn.pixel_scale,
    )


def _failure(number: int, reason: str, evidence: Evidence) -> preprocess_pb2.PageFailure:
    reason, message = page_failure(reason)
    metrics.failures.labels(reason).inc()
    _log.info("page_failed", page=number, reason=reason)
    return preprocess_pb2.PageFailure(page_number=number, reason=reason, message=message, step=evidence.step())
