"""What people are told about a document or a page that cannot be read."""

from affidavit.libs.errors import AffidavitError

_DOCUMENT = {
    "EMPTY_INPUT": "nothing was uploaded",
    "UNSUPPORTED_FORMAT": "the file is no PDF, PNG, JPEG, TIFF or WebP that can be read here",
    "DAMAGED_DOCUMENT": "the file is damaged or truncated and cannot be opened",
    "NO_PAGES": "the document has no pages",
    "PASSWORD_REQUIRED": "the document is encrypted: give its password",
    "PASSWORD_WRONG": "the password does not open the document",
    "IMAGE_TOO_LARGE": "the picture has more pixels than can be decoded here: scale it down",
    "PAGE_BROKEN": "the document cannot be read",
    "PARSER_CRASHED": "the parser died on this document, or needed more memory than it may have",
    "PARSER_TIMEOUT": "the document takes too long to read",
}
_PAGE = {
    "IMAGE_TOO_LARGE": "the page's picture has more pixels than can be decoded here",
    "PAGE_BROKEN": "the page is damaged and cannot be drawn",
    "PARSER_CRASHED": "the parser died on this page, or needed more memory than it may have",
    "PARSER_TIMEOUT": "the page takes too long to draw",
}


def document_error(reason: str) -> AffidavitError:
    return AffidavitError(reason, _DOCUMENT[reason])


def page_failure(reason: str) -> tuple[str, str]:
    """Reason and message; a worker that gives a page a reason that no page has says that the page is broken."""
    reason = reason if reason in _PAGE else "PAGE_BROKEN"
    return reason, _PAGE[reason]
