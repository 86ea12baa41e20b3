"""PDF pages come out as pixels that are the same everywhere, of a size that recognition needs and memory allows."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from affidavit.document.v1 import document_pb2
from tests.contract.made_pdfs import Page, endless, pdf, picture, stream, text
from tests.contract.preprocess_process import SHARED, PreprocessProcess, Rendering, render, serving

GOLDEN: dict[str, list[str]] = json.loads(Path(__file__).with_name("golden_pages.json").read_text("utf-8"))

_FIELD = stream(
    b"BT /F 14 Tf 5 8 Td (filled in) Tj ET", b"/Subtype /Form /BBox [0 0 120 30] /Resources << /Font << /F 3 0 R >> >>"
)
_GREY = bytes((x * y) % 256 for y in range(60) for x in range(120))
MADE = {
    "text": pdf([Page(text("Hello")), Page(text("page two", 8), (595, 842))]),
    "colour": pdf([Page(b"1 0 0 rg 20 20 100 50 re f 0 0 1 RG 5 w 10 10 m 190 90 l S")]),
    "rotated and cropped": pdf([Page(text("turn"), (200, 100), b"/Rotate 90 /CropBox [5 30 105 80]")]),
    "scan": pdf(
        [Page(b"q 200 0 0 100 0 0 cm /I Do Q", resources=b"/XObject << /I 4 0 R >>")], [picture(120, 60, _GREY)]
    ),
    "form": pdf(
        [Page(text("name:"), extra=b"/Annots [4 0 R]")],
        [
            b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /V (filled in) /Rect [70 30 190 60] /F 4"
            b" /AP << /N 5 0 R >> >>",
            _FIELD,
        ],
        b"/AcroForm << /Fields [4 0 R] >>",
    ),
}


@pytest.fixture(scope="module")
def service() -> Iterator[PreprocessProcess]:
    with serving("--page-timeout-s", "5") as process:
        yield process


def page_pixels(rendering: Rendering, number: int = 0) -> np.ndarray:
    image = rendering.pages[number].image
    shape = (image.height, image.width) + ((3,) if image.format == document_pb2.PIXEL_FORMAT_BGR24 else ())
    return np.frombuffer(image.inline, np.uint8).reshape(shape)


@pytest.mark.parametrize("name", sorted(GOLDEN))
async def test_pages_have_the_pixels_that_they_always_had(service: PreprocessProcess, name: str) -> None:
    document = (SHARED / name).read_bytes() if "/" in name else MADE[name]
    rendering = await render(service, document)
    assert [page.image.sha256.hex() for page in rendering.pages] == GOLDEN[name]


async def test_evidence_names_parser_input_and_output(service: PreprocessProcess) -> None:
    rendering = await render(service, MADE["text"])
    (first, _) = rendering.pages
    step = first.step
    assert (step.service, step.version, step.engine, step.engine_version) == (
        "preprocess",
        "1",
        "pdfium",
        "159.0.8149.0",
    )
    assert step.software.startswith("affidavit-preprocess ")
    assert step.input_digest == hashlib.sha256(MADE["text"]).digest()
    assert step.output_digest == first.image.sha256
    assert rendering.opened is not None
    assert rendering.opened.sha256 == step.input_digest
    assert (rendering.opened.size, rendering.opened.media_type) == (len(MADE["text"]), "application/pdf")


async def test_a_page_without_colour_comes_in_grey_and_another_in_colour(service: PreprocessProcess) -> None:
    grey = page_pixels(await render(service, MADE["text"], keep_pixels=True))
    assert grey.ndim == 2
    assert grey.min() == 0
    assert grey[0, 0] == 255
    colour = page_pixels(await render(service, MADE["colour"], keep_pixels=True))
    assert colour[250, 350].tolist() == [0, 0, 255]  # red, as blue-green-red


async def test_geometry_is_of_the_page_as_displayed(service: PreprocessProcess) -> None:
    (page,) = (await render(service, MADE["rotated and cropped"])).pages
    assert (page.image.page_width, page.image.page_height, page.image.pixel_scale) == (5000, 10000, 0)
    assert page.image.height / page.image.width == pytest.approx(2, abs=0.01)


async def test_what_a_form_field_says_is_drawn(service: PreprocessProcess) -> None:
    pixels = page_pixels(await render(service, MADE["form"], keep_pixels=True))
    field = pixels[int(500 * 0.4) : int(500 * 0.7), int(1000 * 0.35) :]
    assert (field < 128).any()


async def test_a_scan_keeps_its_resolution(service: PreprocessProcess) -> None:
    wide = pdf(
        [Page(b"q 612 0 0 792 0 0 cm /I Do Q", (612, 792), resources=b"/XObject << /I 4 0 R >>")],
        [picture(2040, 2640, bytes(2040 * 2640))],
    )
    (page,) = (await render(service, wide)).pages
    assert (page.image.width, page.image.height) == (2040, 2640)


async def test_a_page_of_a_hundred_metres_is_drawn_small(service: PreprocessProcess) -> None:
    side = 100 / 0.0254 * 72
    (page,) = (await render(service, pdf([Page(b"0 0 100000 100000 re f", (side, side))]))).pages
    assert (page.image.width, page.image.height) == (4000, 4000)
    assert page.image.page_width == pytest.approx(side * 100, abs=2)


async def test_a_page_that_explodes_fails_alone() -> None:
    bomb, forms = endless()
    with serving("--worker-memory-bytes", str(128 << 20), "--workers", "1") as service:
        rendering = await render(service, pdf([Page(text("one")), bomb, Page(text("three"))], forms))
    assert [page.image.page_number for page in rendering.pages] == [1, 3]
    (failure,) = rendering.failures
    assert (failure.page_number, failure.reason) == (2, "PARSER_CRASHED")
    assert failure.step.input_digest == rendering.pages[0].step.input_digest
    assert rendering.finished


async def test_a_page_that_takes_too_long_fails_alone() -> None:
    slow = Page(b"0 0 200 100 re f\n" * 400_000)
    with serving("--page-timeout-s", "0.5", "--workers", "1") as service:
        rendering = await render(service, pdf([Page(text("one")), slow, Page(text("three"))]))
        assert [page.image.page_number for page in rendering.pages] == [1, 3]
        assert [(failure.page_number, failure.reason) for failure in rendering.failures] == [(2, "PARSER_TIMEOUT")]


async def test_a_document_that_takes_too_long_is_given_up() -> None:
    with serving("--document-timeout-s", "1.0", "--workers", "1") as service:
        rendering = await render(service, pdf([Page(b"0 0 200 100 re f\n" * 2000)] * 1000))
        assert rendering.reason == "PARSER_TIMEOUT"
        assert rendering.pages
        assert (await render(service, MADE["text"])).finished


async def test_only_the_selected_pages_come(service: PreprocessProcess) -> None:
    document = pdf([Page(text(str(number)), (20, 10)) for number in range(10)])
    rendering = await render(service, document, pages=[(2, 3), (9, 0)])
    assert [page.image.page_number for page in rendering.pages] == [2, 3, 9, 10]
    assert rendering.opened is not None
    assert (rendering.opened.page_count, rendering.opened.selected_count) == (10, 4)
    assert (await render(service, document, pages=[(11, 11)])).reason == "PAGE_OUT_OF_RANGE"
    assert (await render(service, document, pages=[(3, 2)])).reason == "INVALID_OPTION"


async def test_a_document_with_too_many_pages_is_refused() -> None:
    with serving("--max-pages", "3") as service:
        assert (await render(service, pdf([Page()] * 3))).finished
        assert (await render(service, pdf([Page()] * 4))).reason == "TOO_MANY_PAGES"


async def test_five_thousand_pages_take_the_memory_of_a_few(service: PreprocessProcess) -> None:
    def resident() -> list[int]:
        return [
            psutil.Process(service.process.pid).memory_info().rss,
            *(w.memory_info().rss for w in service.workers()),
        ]

    page = Page(text("x", 3), (8, 8))
    await render(service, pdf([page] * 50))
    before = max(resident())
    rendering = await render(service, pdf([page] * 5000), look_ahead=16)
    assert len(rendering.pages) == 5000
    assert rendering.finished
    assert max(resident()) - before < 48 << 20
