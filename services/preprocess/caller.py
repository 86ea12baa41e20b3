"""The caller's messages, in the order that the contract allows: options, chunks, upload_end, releases and resends."""

import asyncio
from collections.abc import AsyncIterator

from affidavit.libs.errors import AffidavitError
from affidavit.preprocess.v1 import preprocess_pb2
from affidavit.services.preprocess.reasons import document_error
from affidavit.services.preprocess.spool import Upload
from affidavit.services.preprocess.window import Window

MAX_CHUNK_BYTES = 1 << 20


class Caller:
    """Reads one call's messages."""

    def __init__(self, requests: AsyncIterator[preprocess_pb2.RenderDocumentRequest], stall_s: float) -> None:
        self._requests = requests
        self._stall_s = stall_s

    async def options(self) -> preprocess_pb2.RenderOptions:
        """The first message.

        Raises:
            AffidavitError: INVALID_STREAM, UPLOAD_STALLED.
        """
        request = await self._next()
        if request.WhichOneof("message") != "options":
            raise AffidavitError("INVALID_STREAM", "the first message must be `options`")
        return request.options

    async def upload(self, upload: Upload) -> None:
        """Everything up to `upload_end`, into the spool.

        Raises:
            AffidavitError: INVALID_STREAM, INVALID_OPTION, UPLOAD_STALLED, UPLOAD_TOO_LARGE, EMPTY_INPUT, STORAGE_FULL.
        """
        while True:
            request = await self._next()
            match request.WhichOneof("message"):
                case "chunk":
                    if not 1 <= len(request.chunk) <= MAX_CHUNK_BYTES:
                        message = f"a chunk has 1 to {MAX_CHUNK_BYTES} bytes, not {len(request.chunk)}"
                        raise AffidavitError("INVALID_OPTION", message, field="chunk")
                    await upload.write(request.chunk)
                case "upload_end":
                    break
                case other:
                    raise AffidavitError("INVALID_STREAM", f"`{other}` before `upload_end`")
        if not upload.size:
            raise document_error("EMPTY_INPUT")
        await upload.finish()

    async def listen(self, window: Window) -> None:
        """Tell the window what the caller releases and asks for, until the caller says no more."""
        try:
            async for request in self._requests:
                match request.WhichOneof("message"):
                    case "release":
                        window.release(request.release.page_number)
                    case "resend":
                        window.resend(request.resend.page_number)
                    case other:
                        raise AffidavitError("INVALID_STREAM", f"`{other}` after `upload_end`")
        except AffidavitError as error:
            window.fail(error)
        else:
            window.half_close()

    async def _next(self) -> preprocess_pb2.RenderDocumentRequest:
        try:
            async with asyncio.timeout(self._stall_s):
                return await anext(self._requests)
        except TimeoutError:
            raise AffidavitError("UPLOAD_STALLED", f"the upload sent nothing for {self._stall_s:g} s") from None
        except StopAsyncIteration:
            raise AffidavitError("INVALID_STREAM", "the stream ended before `upload_end`") from None
