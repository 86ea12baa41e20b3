"""Readiness: a page of our own, drawn by a real worker, pixel for pixel as it must be."""

import hashlib
import os
import platform

from affidavit.services.preprocess.document import SandboxedDocument
from affidavit.services.preprocess.pool import WorkerPool
from affidavit.services.preprocess.protocol import Drawn
from affidavit.services.preprocess.settings import PreprocessSettings


def _pdf() -> bytes:
    """A page of 2 x 1 inches that says "affidavit"."""
    content = b"BT /F 24 Tf 20 26 Td (affidavit) Tj ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 144 72] /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    data = bytearray(b"%PDF-1.4\n")
    offsets: list[int] = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    data += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(data)


CANARY_PDF = _pdf()
# Of the pixels that the pinned wheel draws (requirements/pdfium.txt).
GOLDEN_BUILD = ("159.0.8149.0", "x86_64")
GOLDEN_SHA256 = "67844af9ea0840ab7bcb1fdfb97545e2cfc7429f07e4489550aa6d3398f38eeb"


class Canary:
    """Draws the page, at the head of the line for a worker."""

    def __init__(self, pool: WorkerPool, settings: PreprocessSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._was_right = False

    async def draw(self) -> None:
        """
        Raises:
            RuntimeError: the page came out wrong.
            AffidavitError: it did not come out.
        """
        # Overload is not ill health: while every worker is busy and answers, there is nothing to find out. (Readiness is
        # earned first.)
        if self._was_right and self._pool.progressing(self._settings.page_timeout_s):
            return
        document = SandboxedDocument(self._pool, self, (), self._settings, first=True)
        try:
            await document.open()
            drawn = await document.draw(1)
            if not isinstance(drawn, Drawn):
                raise RuntimeError(f"canary page: {drawn.reason}")
            pixels = bytes(document.pixels(drawn))
        finally:
            document.close()
        if (self._pool.facts.pdfium, platform.machine()) == GOLDEN_BUILD:
            if hashlib.sha256(pixels).hexdigest() != GOLDEN_SHA256:
                raise RuntimeError("canary page has other pixels than it must have")
        elif not 0 < sum(value < 128 for value in pixels) < len(pixels) // 2:
            raise RuntimeError("canary page has no text")
        self._was_right = True

    def open_read_only(self) -> int:
        """The canary as a file."""
        descriptor = os.memfd_create("affidavit-canary", os.MFD_CLOEXEC)
        os.write(descriptor, CANARY_PDF)
        return descriptor
