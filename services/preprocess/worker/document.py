"""Opens a document by what it contains, never by its name."""

import mmap
import os
from typing import Protocol

from affidavit.services.preprocess.protocol import Drawn, WorkerLimits
from affidavit.services.preprocess.worker.area import Area
from affidavit.services.preprocess.worker.pdf import PdfDocument
from affidavit.services.preprocess.worker.picture import PictureDocument
from affidavit.services.preprocess.worker.refusal import Refusal

# PDF 32000-1 implementation note: readers accept %PDF- within the first 1024 bytes.
_PDF_HEADER_WITHIN = 1024
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


class Document(Protocol):
    """An open document."""

    media_type: str
    page_count: int

    def draw(self, index: int, area: Area) -> Drawn: ...

    def close(self) -> None: ...


def open_document(descriptor: int, passwords: tuple[bytes, ...], limits: WorkerLimits) -> Document:
    """Open the document behind a file descriptor, which is taken over.

    Raises:
        Refusal: it cannot be opened.
    """
    file = os.fdopen(descriptor, "rb")
    head = os.pread(descriptor, _PDF_HEADER_WITHIN + 8, 0)
    if head.startswith(_PICTURES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        file.seek(0)
        return PictureDocument(file, limits)
    with file:
        if b"%PDF-" in head:
            return PdfDocument(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ), passwords, limits)
    raise Refusal("UNSUPPORTED_FORMAT")
