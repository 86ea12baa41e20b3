"""Every kind of picture comes out as its page looks, whatever its pixels are made of."""

import io
import struct
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin

from affidavit.document.v1 import document_pb2
from tests.contract.preprocess_process import PreprocessProcess, Rendering, render, serving

WIDTH, HEIGHT = 120, 80


@pytest.fixture(scope="module")
def service() -> Iterator[PreprocessProcess]:
    with serving() as process:
        yield process


def scene() -> NDArray[np.uint8]:
    """A picture that looks different however it is turned: a grey ramp with a red, a green and a blue corner."""
    ramp = np.linspace(0, 255, WIDTH).astype(np.uint8)
    colour = np.repeat(np.tile(ramp, (HEIGHT, 1))[..., None], 3, axis=2)
    colour[:20, :20] = (255, 0, 0)
    colour[:20, -20:] = (0, 255, 0)
    colour[-20:, :20] = (0, 0, 255)
    return colour


COLOUR = Image.fromarray(scene())
GREY = Image.fromarray(np.tile(np.linspace(0, 255, WIDTH).astype(np.uint8), (HEIGHT, 1)))


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def look(rendering: Rendering, number: int = 0) -> NDArray[np.uint8]:
    """The page as red, green and blue, or grey."""
    assert rendering.finished, rendering.error
    image = rendering.pages[number].image
    pixels = np.frombuffer(image.inline, np.uint8)
    if image.format == document_pb2.PIXEL_FORMAT_GRAY8:
        return pixels.reshape(image.height, image.width)
    return pixels.reshape(image.height, image.width, 3)[..., ::-1]


def close(pixels: NDArray[np.uint8], image: Image.Image | NDArray[np.uint8], most: int = 2) -> bool:
    return int(np.abs(pixels.astype(int) - np.asarray(image).astype(int)).max()) <= most


def deep(dtype: str, white: float) -> Image.Image:
    ramp = np.tile(np.linspace(0, white, WIDTH), (HEIGHT, 1))
    return Image.fromarray(ramp.astype(dtype))


def white_is_zero(image: Image.Image) -> bytes:
    info = TiffImagePlugin.ImageFileDirectory_v2()
    info[262] = 0
    return saved(image, "TIFF", tiffinfo=info)


def on_white(image: Image.Image) -> Image.Image:
    paper = Image.new("RGB", image.size, "white")
    paper.paste(image, mask=image.getchannel("A"))
    return paper


def faded(mode: str = "RGBA") -> Image.Image:
    image = COLOUR.convert("RGBA")
    image.putalpha(GREY.transpose(Image.Transpose.ROTATE_180))
    return image.convert(mode)


SAME = {
    "png grey": (saved(GREY, "PNG"), GREY),
    "png colour": (saved(COLOUR, "PNG"), COLOUR),
    "png one bit": (saved(GREY.convert("1"), "PNG"), GREY.convert("1").convert("L")),
    "png palette": (saved(COLOUR.quantize(64), "PNG"), COLOUR.quantize(64).convert("RGB")),
    "png 16 bit grey": (saved(deep("uint16", 65535), "PNG"), GREY),
    "png alpha": (saved(faded(), "PNG"), on_white(faded())),
    "png grey with alpha": (saved(faded("LA"), "PNG"), on_white(faded("LA").convert("RGBA")).convert("L")),
    "png transparent colour": (
        saved(Image.new("RGB", (WIDTH, HEIGHT), (9, 8, 7)), "PNG", transparency=(9, 8, 7)),
        np.full((HEIGHT, WIDTH), 255, np.uint8),
    ),
    "png colour that is grey": (saved(GREY.convert("RGB"), "PNG"), GREY),
    "webp": (saved(COLOUR, "WEBP", lossless=True), COLOUR),
    "webp alpha": (saved(faded(), "WEBP", lossless=True, exact=True), on_white(faded())),
    "tiff colour": (saved(COLOUR, "TIFF"), COLOUR),
    "tiff lzw": (saved(COLOUR, "TIFF", compression="tiff_lzw"), COLOUR),
    "tiff fax": (saved(GREY.convert("1"), "TIFF", compression="group4"), GREY.convert("1").convert("L")),
    "tiff 16 bit grey": (saved(deep("uint16", 65535), "TIFF"), GREY),
    "tiff 16 bit, white is zero": (white_is_zero(deep("uint16", 65535)), Image.fromarray(255 - np.asarray(GREY))),
    "tiff 32 bit": (saved(deep("int32", 65535), "TIFF"), GREY),
    "tiff float to one": (saved(deep("float32", 1), "TIFF"), GREY),
    "tiff float to 255": (saved(deep("float32", 255), "TIFF"), GREY),
    "tiff float of any range": (saved(deep("float32", 1e6), "TIFF"), GREY),
    "tiff palette": (saved(COLOUR.quantize(64), "TIFF"), COLOUR.quantize(64).convert("RGB")),
    "tiff cmyk": (saved(COLOUR.convert("CMYK"), "TIFF"), COLOUR.convert("CMYK").convert("RGB")),
}
LOSSY = {
    "jpeg colour": saved(COLOUR, "JPEG", quality=98, subsampling=0),
    "jpeg progressive": saved(COLOUR, "JPEG", quality=98, subsampling=0, progressive=True),
    "jpeg cmyk": saved(COLOUR.convert("CMYK"), "JPEG", quality=98, subsampling=0),
    "tiff jpeg": saved(COLOUR, "TIFF", compression="jpeg", quality=98),
    "webp lossy": saved(COLOUR, "WEBP", quality=95),
}


@pytest.mark.parametrize("kind", SAME)
async def test_a_picture_keeps_its_pixels(service: PreprocessProcess, kind: str) -> None:
    data, image = SAME[kind]
    assert close(look(await render(service, data, keep_pixels=True)), image)


@pytest.mark.parametrize("kind", LOSSY)
async def test_a_lossy_picture_looks_the_same(service: PreprocessProcess, kind: str) -> None:
    pixels = look(await render(service, LOSSY[kind], keep_pixels=True))
    assert pixels.shape == (HEIGHT, WIDTH, 3)
    assert np.abs(pixels.astype(int) - scene()).mean() < 6


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
async def test_a_turned_picture_is_put_upright(service: PreprocessProcess, kind: str, orientation: int) -> None:
    undo = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = COLOUR.transpose(undo) if undo is not None else COLOUR
    options = {"JPEG": {"quality": 98}, "WEBP": {"lossless": True}}.get(kind, {})
    rendering = await render(service, saved(turned, kind, exif=exif, **options), keep_pixels=True)
    pixels = look(rendering)
    assert pixels.shape == (HEIGHT, WIDTH, 3)
    assert np.abs(pixels.astype(int) - scene()).mean() < 6
    image = rendering.pages[0].image
    assert (image.page_width, image.page_height, image.pixel_scale) == (WIDTH * 100, HEIGHT * 100, 100)


@pytest.mark.parametrize(
    ("kind", "dpi", "geometry"),
    [
        ("PNG", (300, 300), (2880, 1920, 0)),
        ("JPEG", (200, 200), (4320, 2880, 0)),
        ("TIFF", (204, 98), (4235, 5878, 0)),  # a fax's pixels are not square
        ("PNG", (1, 1), (12000, 8000, 100)),
        ("PNG", (50_000, 50_000), (12000, 8000, 100)),
        ("JPEG", None, (12000, 8000, 100)),
        ("WEBP", None, (12000, 8000, 100)),
    ],
)
async def test_geometry_is_in_points_where_the_file_says_a_credible_resolution(
    service: PreprocessProcess, kind: str, dpi: tuple[int, int] | None, geometry: tuple[int, int, int]
) -> None:
    image = (await render(service, saved(GREY, kind, **({"dpi": dpi} if dpi else {})))).pages[0].image
    assert (image.page_width, image.page_height, image.pixel_scale) == pytest.approx(geometry, abs=2)


async def test_a_tiff_has_as_many_pages_as_pictures(service: PreprocessProcess) -> None:
    pictures = [GREY, COLOUR, GREY.convert("1"), COLOUR.convert("CMYK"), deep("uint16", 65535)]
    data = saved(pictures[0], "TIFF", save_all=True, append_images=pictures[1:])
    rendering = await render(service, data, keep_pixels=True)
    assert rendering.opened is not None
    assert (rendering.opened.page_count, rendering.opened.media_type) == (5, "image/tiff")
    assert close(look(rendering, 0), GREY)
    assert close(look(rendering, 1), COLOUR)
    assert close(look(rendering, 2), GREY.convert("1").convert("L"))
    assert close(look(rendering, 3), COLOUR.convert("CMYK").convert("RGB"))
    assert close(look(rendering, 4), GREY)
    some = await render(service, data, pages=[(2, 2), (5, 5)], keep_pixels=True)
    assert close(look(some, 0), COLOUR)
    assert close(look(some, 1), GREY)


async def test_a_broken_page_of_a_tiff_fails_alone(service: PreprocessProcess) -> None:
    data = bytearray(saved(GREY, "TIFF", save_all=True, append_images=[COLOUR, GREY], compression="tiff_adobe_deflate"))
    with Image.open(io.BytesIO(data)) as tiff:
        tiff.seek(1)
        (strip, *_), (length, *_) = tiff.tag_v2[273], tiff.tag_v2[279]
    data[strip : strip + length] = b"\xff" * length
    rendering = await render(service, bytes(data))
    assert [page.image.page_number for page in rendering.pages] == [1, 3]
    assert [(failure.page_number, failure.reason) for failure in rendering.failures] == [(2, "PAGE_BROKEN")]


async def test_a_picture_is_averaged_down_to_the_limits(service: PreprocessProcess) -> None:
    checks = np.tile(np.array([[0, 255], [255, 0]], np.uint8), (3000, 3000))
    rendering = await render(service, saved(Image.fromarray(checks), "PNG", compress_level=1), keep_pixels=True)
    image = rendering.pages[0].image
    assert (image.width, image.height) == (4000, 4000)
    assert (image.page_width, image.pixel_scale) == (600_000, 100)
    assert abs(float(look(rendering).mean()) - 127.5) < 1
    long = await render(service, saved(Image.new("1", (20_000, 100)), "PNG"))
    assert (long.pages[0].image.width, long.pages[0].image.height) == (10_000, 50)


async def test_a_large_jpeg_is_decoded_small(service: PreprocessProcess) -> None:
    large = COLOUR.resize((12_000, 8_000))
    rendering = await render(service, saved(large, "JPEG"), keep_pixels=True)
    pixels = look(rendering)
    assert pixels.shape == (3266, 4898, 3)
    small = np.asarray(Image.fromarray(pixels).resize((WIDTH, HEIGHT), Image.Resampling.BOX))
    assert np.abs(small.astype(int) - scene()).mean() < 6


def png(width: int, height: int, data: bytes) -> bytes:
    def piece(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + piece(b"IHDR", header) + piece(b"IDAT", data) + piece(b"IEND", b"")


async def test_a_picture_of_fifty_thousand_squared_is_refused_by_its_header(service: PreprocessProcess) -> None:
    data = png(50_000, 50_000, zlib.compress(bytes(100_000)))
    assert len(data) < 1000
    assert (await render(service, data)).reason == "IMAGE_TOO_LARGE"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
async def test_a_truncated_picture_is_damaged(service: PreprocessProcess, kind: str) -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 255, (200, 200, 3), np.uint8))
    data = saved(noise, kind)
    assert (await render(service, data[: len(data) // 2])).reason == "DAMAGED_DOCUMENT"


@pytest.mark.parametrize(
    "head", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"II*\0", b"MM\0*", b"RIFF\0\0\0\0WEBPVP8 "]
)
async def test_a_picture_that_is_only_a_header_is_damaged(service: PreprocessProcess, head: bytes) -> None:
    assert (await render(service, head + bytes(40))).reason == "DAMAGED_DOCUMENT"


@pytest.mark.parametrize("data", [b"GIF89a" + bytes(100), b"PK\x03\x04" + bytes(100), b"hello", bytes(5000)])
async def test_what_is_no_document_is_said_so(service: PreprocessProcess, data: bytes) -> None:
    assert (await render(service, data)).reason == "UNSUPPORTED_FORMAT"


async def test_evidence_names_the_decoder(service: PreprocessProcess) -> None:
    (page,) = (await render(service, saved(GREY, "PNG"))).pages
    assert (page.step.engine, page.step.engine_version) == ("pillow", "13.0.0")
