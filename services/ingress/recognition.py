"""One document's way through: upload to preprocess, pages to ocr, records to audit, answers to the caller.

Every buffer is bounded: preprocess draws at most `look_ahead` pages that are not yet delivered, and a page's lease ends
when the caller has taken its answer. So a slow reader slows its own document, and nobody else's.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import duration_pb2
from prometheus_client import Counter, Histogram

from affidavit.document.v1 import document_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.ingress.v1 import document_pb2 as ingress_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.document import RESULT_PREFIX, SEPARATOR, failed_page, page_result, result_suffix
from affidavit.libs.errors import RULES, AffidavitError, from_rpc_error
from affidavit.libs.evidence.commitment import Commitment, new_salt
from affidavit.libs.rpc import CallInfo
from affidavit.libs.telemetry import get_logger
from affidavit.ocr.v1 import ocr_pb2
from affidavit.preprocess.v1 import preprocess_pb2
from affidavit.services.ingress.appender import Appends
from affidavit.services.ingress.environment_record import EnvironmentRecord
from affidavit.services.ingress.page_reader import PageReader
from affidavit.services.ingress.peers import Peers, RetryBudget, repeated
from affidavit.services.ingress.records import DocumentRecords
from affidavit.services.ingress.upload import Upload, render_options

PROGRESS_BYTES = 4 << 20  # a progress message for each so many bytes received
ABANDON_TIMEOUT_S = 5.0

Response = ingress_pb2.RecognizeDocumentResponse
_STATUS = {
    document_pb2.PAGE_STATUS_OK: "ok",
    document_pb2.PAGE_STATUS_UNCERTAIN: "uncertain",
    document_pb2.PAGE_STATUS_FAILED: "failed",
}
_log = get_logger("recognition")
_pages = Counter("affidavit_ingress_pages_total", "Pages answered", ["status"])
_first_page = Histogram(
    "affidavit_ingress_first_page_seconds",
    "From the upload's last byte to the first page's answer",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30),
)


@dataclass
class _Answer:
    """What is known of a page when it is ready."""

    text: document_pb2.PageText
    result: bytes
    steps: list[evidence_pb2.StepEvidence]
    image_digest: bytes
    recognition_s: float


class Recognition:
    """The work of one RecognizeDocument call. `run` does it, `responses` hands out what it says."""

    def __init__(
        self,
        peers: Peers,
        appender: Appends,
        budget: RetryBudget,
        call: CallInfo,
        *,
        environment: EnvironmentRecord,
        look_ahead: int,
        max_upload_bytes: int,
        timeout_s: float,
    ) -> None:
        self._peers = peers
        self._appender = appender
        self._budget = budget
        self._call = call
        self._environment = environment
        self._look_ahead = look_ahead
        self._max_upload_bytes = max_upload_bytes
        self._timeout_s = timeout_s
        self._started = time.monotonic()
        self._uploaded = self._started
        self._out: asyncio.Queue[Response] = asyncio.Queue(1)
        self._progress = ingress_pb2.Progress()
        self._counts: dict[int, int] = dict.fromkeys(_STATUS, 0)

    async def responses(self, requests: AsyncIterator[ingress_pb2.RecognizeDocumentRequest]) -> AsyncIterator[Response]:
        """The call's answer, in order. Ends the work when the caller stops reading.

        Raises:
            AffidavitError: why there is no answer, or no more of it.
        """
        # A task of its own: this generator may be closed from another task than the one that runs it.
        work = asyncio.create_task(self._recognize(requests), name="recognition")
        try:
            while not (work.done() and self._out.empty()):
                following = asyncio.ensure_future(self._out.get())
                await asyncio.wait({following, work}, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    yield following.result()
                    self._out.task_done()  # it has been written to the caller
                else:
                    following.cancel()
            await work
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, AffidavitError):
                await work

    async def _recognize(self, requests: AsyncIterator[ingress_pb2.RecognizeDocumentRequest]) -> None:
        opened_salt, closed_salt = new_salt(), new_salt()
        upload = Upload(requests, (opened_salt, closed_salt), self._max_upload_bytes)
        options = await upload.options()
        bundle = await self._bundle()
        records = DocumentRecords(
            self._appender,
            self._call.tenant,
            self._call.request_id,
            bundle,
            canonicaljson.dumps({"pages": [[r.first, r.last] for r in options.pages]}),
            self._started,
        )
        await self._say(
            accepted=ingress_pb2.Accepted(request_id=self._call.request_id, bundle=bundle, result_prefix=RESULT_PREFIX)
        )
        document = _Document(self, upload, options, bundle, records, opened_salt, Commitment(closed_salt))
        try:
            await document.run()
            opened = document.opened
            suffix = result_suffix(opened.media_type, opened.page_count)
            document.output.update(suffix)
            receipt = await records.close(
                upload.commitments[1], document.output.digest(), self._document_status(), closed_salt
            )
        except AffidavitError as error:
            await self._abandon(records, f"failed:{error.reason}")
            raise
        except asyncio.CancelledError:
            await self._abandon(records, "cancelled")
            raise
        await self._say(
            completed=ingress_pb2.Completed(
                result_suffix=suffix,
                page_count=sum(self._counts.values()),
                failed_count=self._counts[document_pb2.PAGE_STATUS_FAILED],
                uncertain_count=self._counts[document_pb2.PAGE_STATUS_UNCERTAIN],
                receipt=receipt,
                elapsed=_duration(time.monotonic() - self._started),
            )
        )

    async def _bundle(self) -> str:
        request = ocr_pb2.GetBundleRequest(bundle=self._call.model_version)
        timeout_s = min(10.0, self._timeout_s)
        answer = await repeated("ocr", self._budget, lambda: self._peers.ocr.GetBundle(request, timeout=timeout_s))
        return f"{answer.bundle.name}@{answer.bundle.version}"

    async def _say(self, **message: Any) -> None:
        """Hand a message out; returns when it has been written to the caller."""
        await self._out.put(Response(**message))
        await self._out.join()

    async def _abandon(self, records: DocumentRecords, status: str) -> None:
        try:
            async with asyncio.timeout(ABANDON_TIMEOUT_S):
                await asyncio.shield(asyncio.ensure_future(records.abandon(status)))
        except (AffidavitError, TimeoutError) as error:
            _log.warning("abandoned_without_record", status=status, error=str(error))

    def _document_status(self) -> str:
        failed = self._counts[document_pb2.PAGE_STATUS_FAILED]
        uncertain = self._counts[document_pb2.PAGE_STATUS_UNCERTAIN]
        return "failed:PAGES" if failed else "uncertain" if uncertain else "ok"


class _Document:
    """The three lanes of one document: upload, drawing and reading, delivery in page order."""

    def __init__(
        self,
        owner: Recognition,
        upload: Upload,
        options: ingress_pb2.RecognizeOptions,
        bundle: str,
        records: DocumentRecords,
        opened_salt: bytes,
        output: Commitment,
    ) -> None:
        self._owner = owner
        self._upload = upload
        self._options = options
        self._records = records
        self._opened_salt = opened_salt
        self.output = output  # over the result's bytes, as they are delivered
        self.output.update(RESULT_PREFIX)
        self.opened = preprocess_pb2.DocumentOpened()
        self._render = owner._peers.preprocess.RenderDocument(timeout=owner._timeout_s)
        self._reader = PageReader(owner._peers.ocr, bundle, owner._budget, owner._timeout_s)
        self._ordered: asyncio.Queue[tuple[int, asyncio.Task[_Answer]] | None] = asyncio.Queue(owner._look_ahead + 1)
        self._resent: dict[int, asyncio.Future[document_pb2.PageImage]] = {}
        self._write_lock = asyncio.Lock()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as lanes:
                lanes.create_task(self._send())
                lanes.create_task(self._draw(lanes))
                lanes.create_task(self._deliver())
        except ExceptionGroup as errors:  # not `except*`: Python 3.11.2 puts what is raised there into a group again
            raise _cause(errors) from None
        finally:
            self._render.cancel()
            await self._reader.close()

    async def _send(self) -> None:
        """The upload, as fast as preprocess takes it."""
        owner, reported = self._owner, 0
        await self._write(options=render_options(self._options, owner._look_ahead))
        async for chunk in self._upload.chunks():
            if not await self._write(chunk=chunk):
                return
            if self._upload.received - reported >= PROGRESS_BYTES:
                reported = self._upload.received
                await self._say_progress()
        owner._uploaded = time.monotonic()
        if await self._write(upload_end=preprocess_pb2.UploadEnd()):
            await self._say_progress()

    async def _write(self, **message: Any) -> bool:
        """Send one message to preprocess; False when it has ended the call, whose status `_draw` then reports."""
        try:
            # One at a time: grpc.aio refuses a second write while one waits for flow control.
            async with self._write_lock:
                await self._render.write(preprocess_pb2.RenderDocumentRequest(**message))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return False
        return True

    async def _draw(self, lanes: asyncio.TaskGroup) -> None:
        """What preprocess answers: a task for each page, in order."""
        try:
            async for response in self._render:
                match response.WhichOneof("message"):
                    case "opened":
                        await self._open(response.opened)
                    case "page":
                        image = response.page.image
                        if again := self._resent.pop(image.page_number, None):
                            again.set_result(image)
                        else:
                            task = lanes.create_task(self._read(response.page))
                            await self._ordered.put((image.page_number, task))
                    case "failure":
                        task = lanes.create_task(_failure(response.failure))
                        await self._ordered.put((response.failure.page_number, task))
                    case "finished":
                        await self._ordered.put(None)
                        return
                    case _:
                        continue
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, "preprocess") from None
        raise AffidavitError("SERVICE_UNAVAILABLE", "preprocess ended the stream before the last page")

    async def _open(self, opened: preprocess_pb2.DocumentOpened) -> None:
        if opened.sha256 != self._upload.digest:
            raise AffidavitError("HASH_MISMATCH", "preprocess received other bytes than were uploaded")
        self.opened = opened
        environment_index = await self._owner._environment.index(opened.info)
        await self._records.open(environment_index, self._upload.digest, self._upload.commitments[0], self._opened_salt)
        progress = self._owner._progress
        progress.page_count, progress.selected_count = opened.page_count, opened.selected_count
        await self._say_progress()

    async def _read(self, page: preprocess_pb2.RenderedPage) -> _Answer:
        begin = time.monotonic()
        response = await self._reader.read(page.image)
        if response.error.reason == "HANDLE_UNREACHABLE":
            again = asyncio.get_running_loop().create_future()
            self._resent[page.image.page_number] = again
            await self._write(resend=preprocess_pb2.PageResend(page_number=page.image.page_number))
            response = await self._reader.read(await again)
        number, digest = page.image.page_number, page.image.sha256
        if reason := response.error.reason:
            if RULES[reason].retry_after_s is not None:  # not this page's fault: the whole call may be tried again
                raise AffidavitError(reason, f"page {number}: {response.error.message}")
            _log.warning("page_failed", page=number, reason=reason, message=response.error.message)
            text = failed_page(number, reason)
            return _Answer(text, page_result(text), [page.step], digest, time.monotonic() - begin)
        steps = [page.step, *response.steps]
        return _Answer(response.text, response.result, steps, digest, time.monotonic() - begin)

    async def _deliver(self) -> None:
        """Each page, in order: durable, then sent, then its lease released."""
        owner = self._owner
        first = True
        while (item := await self._ordered.get()) is not None:
            number, task = item
            answer = await task
            status = _STATUS[answer.text.status] + (f":{answer.text.reason}" if answer.text.reason else "")
            receipt = await self._records.page(number, answer.image_digest, answer.result, status, answer.steps)
            self.output.update(answer.result if first else SEPARATOR + answer.result)
            if first:
                _first_page.observe(time.monotonic() - owner._uploaded)
            first = False
            timing = ingress_pb2.PageTiming(
                recognition=_duration(answer.recognition_s), elapsed=_duration(time.monotonic() - owner._started)
            )
            await owner._say(
                page=ingress_pb2.PageResult(text=answer.text, result=answer.result, receipt=receipt, meta=timing)
            )
            owner._counts[answer.text.status] += 1
            _pages.labels(_STATUS[answer.text.status]).inc()
            if answer.image_digest:  # it was drawn, so it has a lease
                await self._write(release=preprocess_pb2.PageRelease(page_number=number))
            owner._progress.done_count += 1
            await self._say_progress()

    async def _say_progress(self) -> None:
        self._owner._progress.received_bytes = self._upload.received
        progress = ingress_pb2.Progress()
        progress.CopyFrom(self._owner._progress)
        await self._owner._say(progress=progress)


async def _failure(failure: preprocess_pb2.PageFailure) -> _Answer:
    _log.warning("page_failed", page=failure.page_number, reason=failure.reason, message=failure.message)
    text = failed_page(failure.page_number, failure.reason)
    return _Answer(text, page_result(text), [failure.step], b"", 0.0)


def _cause(errors: ExceptionGroup) -> Exception:
    """Why the lanes ended: a fault of ours if there is one, else what the first lane was refused for."""
    faults = errors.split(AffidavitError)[1]
    error: Exception = faults or errors
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMicroseconds(int(seconds * 1e6))
    return duration
