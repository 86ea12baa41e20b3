"""The caller's upload: checked, hashed under both document salts while it passes through to preprocess."""

import hashlib
from collections.abc import AsyncIterator

from affidavit.ingress.v1 import document_pb2 as ingress_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.commitment import Commitment
from affidavit.preprocess.v1 import preprocess_pb2

MAX_CHUNK = 1 << 20
MAX_RANGES = 1000
MAX_PASSWORD = 1024


class Upload:
    """Reads a RecognizeDocument request stream. `options` first, then `chunks`; afterwards the digests are complete."""

    def __init__(
        self,
        requests: AsyncIterator[ingress_pb2.RecognizeDocumentRequest],
        salts: tuple[bytes, bytes],
        max_bytes: int,
    ) -> None:
        self._requests = aiter(requests)
        self._sha256 = hashlib.sha256()
        self._commitments = tuple(Commitment(salt) for salt in salts)
        self._max_bytes = max_bytes
        self.received = 0

    async def options(self) -> ingress_pb2.RecognizeOptions:
        """The first message.

        Raises:
            AffidavitError: INVALID_STREAM when it is something else, INVALID_OPTION when a value is out of range.
        """
        first = await anext(self._requests, None)
        if first is None or first.WhichOneof("message") != "options":
            raise AffidavitError("INVALID_STREAM", "the first message must be `options`")
        options = first.options
        if len(options.pages) > MAX_RANGES:
            raise AffidavitError("INVALID_OPTION", f"at most {MAX_RANGES} page ranges", field="options.pages")
        previous = 0
        for i, page_range in enumerate(options.pages):
            open_end = page_range.last == 0
            if page_range.first <= previous or (not open_end and page_range.last < page_range.first):
                raise AffidavitError(
                    "INVALID_OPTION", "page ranges must be 1-based, rising and disjoint", field=f"options.pages[{i}]"
                )
            if open_end and i + 1 < len(options.pages):
                raise AffidavitError(
                    "INVALID_OPTION", "only the last page range may be open", field=f"options.pages[{i}].last"
                )
            previous = page_range.last
        if len(options.password) > MAX_PASSWORD:
            raise AffidavitError(
                "INVALID_OPTION", f"password of over {MAX_PASSWORD} characters", field="options.password"
            )
        return options

    async def chunks(self) -> AsyncIterator[bytes]:
        """The document's bytes as they arrive."""
        async for request in self._requests:
            if request.WhichOneof("message") != "chunk":
                raise AffidavitError("INVALID_STREAM", "after `options` only `chunk`s may follow")
            if not 0 < len(request.chunk) <= MAX_CHUNK:
                raise AffidavitError("INVALID_STREAM", f"a chunk has 1 to {MAX_CHUNK} bytes, not {len(request.chunk)}")
            if self.received + len(request.chunk) > self._max_bytes:
                raise AffidavitError("UPLOAD_TOO_LARGE", f"the upload is larger than {self._max_bytes} bytes")
            self._sha256.update(request.chunk)
            for commitment in self._commitments:
                commitment.update(request.chunk)
            self.received += len(request.chunk)
            yield request.chunk

    @property
    def digest(self) -> bytes:
        """SHA-256 of what was received."""
        return self._sha256.digest()

    @property
    def commitments(self) -> tuple[bytes, bytes]:
        """The input commitments of the opened and of the closed record."""
        opened, closed = self._commitments
        return opened.digest(), closed.digest()


def render_options(options: ingress_pb2.RecognizeOptions, look_ahead: int) -> preprocess_pb2.RenderOptions:
    """The caller's options as preprocess takes them."""
    ranges = [preprocess_pb2.PageRange(first=r.first, last=r.last) for r in options.pages]
    return preprocess_pb2.RenderOptions(pages=ranges, password=options.password, look_ahead=look_ahead)
