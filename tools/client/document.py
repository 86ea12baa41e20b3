"""Stream one document through `DocumentService` and rebuild the exact result bytes."""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from affidavit.document.v1 import document_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.ingress.v1 import document_pb2 as ingress_pb2
from affidavit.ingress.v1 import document_pb2_grpc as ingress_grpc
from affidavit.libs import canonicaljson
from affidavit.libs.document import SEPARATOR

CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True)
class PageRange:
    """Pages first to last, 1-based, both included; last 0 means the document's last."""

    first: int
    last: int


@dataclass(frozen=True)
class Page:
    """A page as it arrived."""

    text: document_pb2.PageText
    result: bytes
    receipt: evidence_pb2.Receipt


@dataclass(frozen=True)
class Document:
    """A document's end: the exact result bytes and their receipt."""

    request_id: str
    bundle: str
    result: bytes
    receipt: evidence_pb2.Receipt
    page_count: int
    failed_count: int
    uncertain_count: int


OnProgress = Callable[[ingress_pb2.Progress], None]
OnPage = Callable[[Page], None]


def parse_pages(text: str) -> list[PageRange]:
    """`1-3,7,9-` as ranges.

    Raises:
        ValueError: not of that form, or not rising.
    """
    ranges: list[PageRange] = []
    for part in text.split(",") if text else ():
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise ValueError(f"{text!r} is no list of pages; write 1-3,7 or 5-")
        begin = int(first)
        end = int(last) if last else 0 if dash else begin
        if begin < 1 or (end and end < begin) or (ranges and not 0 < ranges[-1].last < begin):
            raise ValueError(f"{text!r}: page ranges must rise and start at 1")
        ranges.append(PageRange(begin, end))
    return ranges


def request_id(digest: bytes, pages: Sequence[PageRange], bundle: str) -> str:
    """The same input, options and bundle give the same id, so that a repeated call finds the records of the first."""
    key = canonicaljson.dumps(
        {"bundle": bundle, "input": digest.hex(), "pages": [[p.first, p.last] for p in pages], "v": 1}
    )
    return "doc-" + hashlib.sha256(key).hexdigest()[:40]


def file_digest(file: BinaryIO) -> bytes:
    """SHA-256 of a file, which is rewound afterwards."""
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    file.seek(0)
    return digest.digest()


async def recognize(
    stub: ingress_grpc.DocumentServiceStub,
    file: BinaryIO,
    *,
    pages: Sequence[PageRange] = (),
    password: str = "",
    request_id: str = "",
    bundle: str = "",
    on_page: OnPage,
    on_progress: OnProgress = lambda _: None,
) -> Document:
    """Stream `file` in, report pages as they come, return the whole.

    Raises:
        grpc.aio.AioRpcError: the call's status.
    """
    metadata = [(k, v) for k, v in (("x-request-id", request_id), ("x-model-version", bundle)) if v]
    call = stub.RecognizeDocument(_requests(file, pages, password), metadata=metadata)
    result: list[bytes] = []
    accepted = ingress_pb2.Accepted()
    received = 0
    async for response in call:
        match response.WhichOneof("message"):
            case "accepted":
                accepted = response.accepted
                result.append(accepted.result_prefix)
            case "progress":
                on_progress(response.progress)
            case "page":
                if received:
                    result.append(SEPARATOR)
                received += 1
                result.append(response.page.result)
                on_page(Page(response.page.text, response.page.result, response.page.receipt))
            case "completed":
                end = response.completed
                return Document(
                    accepted.request_id,
                    accepted.bundle,
                    b"".join([*result, end.result_suffix]),
                    end.receipt,
                    end.page_count,
                    end.failed_count,
                    end.uncertain_count,
                )
            case _:  # a newer server's message
                continue
    raise ConnectionError("the stream ended without its receipt")


async def _requests(
    file: BinaryIO, pages: Sequence[PageRange], password: str
) -> AsyncIterator[ingress_pb2.RecognizeDocumentRequest]:
    ranges = [ingress_pb2.PageRange(first=p.first, last=p.last) for p in pages]
    options = ingress_pb2.RecognizeOptions(pages=ranges, password=password)
    yield ingress_pb2.RecognizeDocumentRequest(options=options)
    while chunk := file.read(CHUNK_BYTES):
        yield ingress_pb2.RecognizeDocumentRequest(chunk=chunk)
