"""PDFs made for tests, byte for byte the same each time."""

import zlib
from collections.abc import Sequence
from typing import NamedTuple


class Page(NamedTuple):
    content: bytes = b""
    size: tuple[float, float] = (200, 100)
    extra: bytes = b""  # further entries of the page's dictionary
    resources: bytes = b""  # further entries of its resources


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entries, content)


def text(words: str, size: int = 20) -> bytes:
    return b"BT /F %d Tf 10 40 Td (%s) Tj ET\n" % (size, words.encode("latin-1"))


def pdf(pages: Sequence[Page], objects: Sequence[bytes] = (), catalog: bytes = b"") -> bytes:
    """A document. Further `objects` have the numbers 4, 5, ..."""
    first_page = 4 + len(objects)
    kids = b" ".join(b"%d 0 R" % (first_page + 2 * number) for number in range(len(pages)))
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog,
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        *objects,
    ]
    for number, page in enumerate(pages):
        bodies.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %f %f] /Contents %d 0 R %s"
            b" /Resources << /Font << /F 3 0 R >> %s >> >>"
            % (*page.size, first_page + 2 * number + 1, page.extra, page.resources)
        )
        bodies.append(stream(page.content))
    data = bytearray(b"%PDF-1.7\n")
    offsets: list[int] = []
    for number, body in enumerate(bodies, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1)
    data += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    data += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(bodies) + 1, start)
    return bytes(data)


def picture(width: int, height: int, pixels: bytes, colour: bytes = b"/DeviceGray") -> bytes:
    """An image XObject of eight bits a sample."""
    entries = (
        b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace %s /BitsPerComponent 8 /Filter /FlateDecode"
    )
    return stream(zlib.compress(pixels), entries % (width, height, colour))


def endless(first: int = 4, levels: int = 20) -> tuple[Page, list[bytes]]:
    """A page that draws a form that draws the next one ten times, and so on, and the forms, numbered from `first`."""
    forms = [
        stream(
            b"/X Do " * 10 if level < levels - 1 else b"0 0 10 10 re f",
            b"/Type /XObject /Subtype /Form /BBox [0 0 200 100] /Resources << /XObject << /X %d 0 R >> >>"
            % (first + min(level + 1, levels - 1)),
        )
        for level in range(levels)
    ]
    return Page(b"/X Do", resources=b"/XObject << /X %d 0 R >>" % first), forms
