"""The certificates of a timestamp response in the order that DER asks for.

They are a SET, which DER sorts; openssl, and with it many an authority, writes them as they come, and strict readers refuse
that. No signature covers their order, and sorting changes no length: the response means the same.
"""

from collections.abc import Iterator

# TimeStampResp: the second member of a sequence is the token; its second, [0], holds SignedData, a sequence whose member
# [0] is the certificates (RFC 3161 2.4.2, RFC 5652 5.1).
_CONTEXT_0 = 0xA0
_SHORT_LENGTH = 0x80


def sorted_certificates(response: bytes) -> bytes:
    """`response` with its certificates sorted.

    Raises:
        ValueError: its outer structure is not that of a response with a token.
    """
    try:
        (_, _, token) = list(_members(response, *_content(response, 0)))[1]
        (_, _, wrapped) = list(_members(response, *token))[1]
        (_, _, signed) = next(_members(response, *wrapped))
        found = [inner for start, _, inner in _members(response, *signed) if response[start] == _CONTEXT_0]
    except (IndexError, StopIteration):
        raise ValueError("it has no token") from None
    if not found:
        return response
    begin, end = found[0]
    certificates = sorted(response[start:stop] for start, stop, _ in _members(response, begin, end))
    return response[:begin] + b"".join(certificates) + response[end:]


def _members(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Start, end and content's bounds of each element between `begin` and `end`."""
    while begin < end:
        inner = _content(data, begin)
        if inner[1] > end:
            raise ValueError("an element is longer than what it is in")
        yield begin, inner[1], inner
        begin = inner[1]


def _content(data: bytes, start: int) -> tuple[int, int]:
    """Bounds of the content of the element at `start`, whose tag has one byte."""
    if start + 2 > len(data):
        raise ValueError("an element is cut off")
    length, begin = data[start + 1], start + 2
    if length >= _SHORT_LENGTH:
        size = length - _SHORT_LENGTH
        length, begin = int.from_bytes(data[begin : begin + size]), begin + size
    if begin + length > len(data):
        raise ValueError("an element is longer than the response")
    return begin, begin + length
