"""An upload is checked while it passes: order, sizes, page ranges, the limit; and hashed under both salts."""

import hashlib

import pytest

from affidavit.ingress.v1 import document_pb2 as pb
from affidavit.libs.errors import AffidavitError
from affidavit.services.ingress.upload import MAX_CHUNK, MAX_RANGES, Upload

SALTS = (bytes(32), bytes([1]) * 32)


def upload(*requests: pb.RecognizeDocumentRequest, max_bytes: int = 10 * MAX_CHUNK) -> Upload:
    async def stream():
        for request in requests:
            yield request

    return Upload(stream(), SALTS, max_bytes)


def options(*pages: tuple[int, int], password: str = "") -> pb.RecognizeDocumentRequest:
    ranges = [pb.PageRange(first=first, last=last) for first, last in pages]
    return pb.RecognizeDocumentRequest(options=pb.RecognizeOptions(pages=ranges, password=password))


def chunk(data: bytes) -> pb.RecognizeDocumentRequest:
    return pb.RecognizeDocumentRequest(chunk=data)


async def reason_of(work) -> str:
    with pytest.raises(AffidavitError) as caught:
        await work
    return caught.value.reason


async def drain(up: Upload) -> bytes:
    await up.options()
    return b"".join([piece async for piece in up.chunks()])


async def test_the_bytes_pass_through_and_are_hashed_under_both_salts() -> None:
    up = upload(options(), chunk(b"abc"), chunk(b"def"))
    assert await drain(up) == b"abcdef"
    assert up.digest == hashlib.sha256(b"abcdef").digest()
    assert up.commitments == tuple(hashlib.sha256(salt + b"abcdef").digest() for salt in SALTS)


@pytest.mark.parametrize("first", [[], [chunk(b"x")]])
async def test_the_first_message_must_be_options(first: list[pb.RecognizeDocumentRequest]) -> None:
    assert await reason_of(upload(*first).options()) == "INVALID_STREAM"


async def test_options_may_come_once() -> None:
    assert await reason_of(drain(upload(options(), options()))) == "INVALID_STREAM"


@pytest.mark.parametrize("data", [b"", bytes(MAX_CHUNK + 1)])
async def test_a_chunk_has_between_one_byte_and_a_mebibyte(data: bytes) -> None:
    assert await reason_of(drain(upload(options(), chunk(data)))) == "INVALID_STREAM"


async def test_an_upload_over_the_limit_is_refused_at_the_chunk_that_crosses_it() -> None:
    up = upload(options(), chunk(b"12345"), chunk(b"6"), max_bytes=5)
    assert await reason_of(drain(up)) == "UPLOAD_TOO_LARGE"
    assert up.received == 5


@pytest.mark.parametrize(
    "pages",
    [
        [(0, 1)],
        [(3, 2)],
        [(1, 3), (3, 4)],
        [(5, 6), (1, 2)],
        [(1, 0), (4, 5)],
        [(n, n) for n in range(1, MAX_RANGES + 2)],
    ],
)
async def test_page_ranges_must_rise_and_be_disjoint_and_few(pages: list[tuple[int, int]]) -> None:
    assert await reason_of(upload(options(*pages)).options()) == "INVALID_OPTION"


@pytest.mark.parametrize("pages", [[], [(1, 1)], [(1, 3), (7, 7), (9, 0)]])
async def test_rising_ranges_are_fine(pages: list[tuple[int, int]]) -> None:
    assert len((await upload(options(*pages)).options()).pages) == len(pages)


async def test_an_endless_password_is_refused() -> None:
    assert await reason_of(upload(options(password="x" * 5000)).options()) == "INVALID_OPTION"
