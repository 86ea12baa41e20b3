"""The document result: exactly the bytes that are hashed, receipted and written by `affidavit ocr -o`.

A page's bytes are made once, where the page is read (`page_result`); the document's bytes are joined from them
(`RESULT_PREFIX`, `SEPARATOR`, `result_suffix`), never serialised again. Schema: docs/schema/document-v1.json.
"""

from affidavit.document.v1 import document_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.canonicaljson import Json

_STATUS = {
    document_pb2.PAGE_STATUS_OK: "ok",
    document_pb2.PAGE_STATUS_UNCERTAIN: "uncertain",
    document_pb2.PAGE_STATUS_FAILED: "failed",
}

# RFC 8785 sorts members by name: "pages" < "source" < "v".
RESULT_PREFIX = b'{"pages":['
SEPARATOR = b","


def result_suffix(media_type: str, page_count: int) -> bytes:
    """What follows the last page in a document's result.

    Args:
        media_type: of the input, "application/pdf".
        page_count: pages that the whole document has, read or not.
    """
    source: Json = {"media_type": media_type, "page_count": page_count}
    return b'],"source":' + canonicaljson.dumps(source) + b',"v":1}'


def page_result(text: document_pb2.PageText) -> bytes:
    """The RFC 8785 bytes of one page ($defs/page of the schema)."""
    page: dict[str, Json] = {"page": text.page_number, "status": _STATUS[text.status]}
    if text.status == document_pb2.PAGE_STATUS_FAILED:
        page["reason"] = text.reason
        return canonicaljson.dumps(page)
    page |= {
        "blank": text.blank,
        "confidence": text.confidence,
        "height": text.height,
        "lines": [_line(line) for line in text.lines],
        "rotation": text.rotation,
        "width": text.width,
    }
    if text.pixel_scale:
        page["pixel_scale"] = text.pixel_scale
    if text.suggestion:
        page["suggestion"] = text.suggestion
    return canonicaljson.dumps(page)


def failed_page(page_number: int, reason: str) -> document_pb2.PageText:
    """The text of a page that could not be read."""
    return document_pb2.PageText(page_number=page_number, status=document_pb2.PAGE_STATUS_FAILED, reason=reason)


def _line(line: document_pb2.Line) -> Json:
    words: list[Json] = [
        {"confidence": word.confidence, "quad": _quad(word.quad), "text": word.text} for word in line.words
    ]
    return {"confidence": line.confidence, "quad": _quad(line.quad), "text": line.text, "words": words}


def _quad(quad: document_pb2.Quad) -> Json:
    return [quad.x1, quad.y1, quad.x2, quad.y2, quad.x3, quad.y3, quad.x4, quad.y4]
