"""The pipeline in process, on real weights and real pages."""

import asyncio
from pathlib import Path

import cv2
import numpy as np
import pytest
import pytest_asyncio

from affidavit.libs.errors import AffidavitError
from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.services.ocr import canary
from affidavit.services.ocr.pipeline import OcrPipeline, PageReading, Scheduling
from affidavit.services.ocr.recognition import Crop, Recognizer
from affidavit.tools.bench.ocr_pages import page_images

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACCURACY = Path(__file__).parents[4] / "shared" / "data" / "ocr" / "accuracy"


def page(name: str) -> np.ndarray:
    return next(page_images(ACCURACY / name))


def says(reading: PageReading) -> list[tuple]:
    """Everything that a reading says, bit for bit."""
    return [
        (reading.rotation, reading.confidence.hex(), reading.uncertain, reading.boxes_digest),
        *((line.text, line.quad.tobytes(), [c.hex() for c in line.confidence]) for line in reading.lines),
    ]


def text_of(reading: PageReading) -> str:
    return "\n".join(line.text for line in reading.lines)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline():
    # Held long, so that crops of different callers do meet.
    scheduling = Scheduling(max_batch=8, hold_us=20_000)
    pipeline = OcrPipeline(ModelFolder(default_models_folder()).bundle("document"), threads=2, scheduling=scheduling)
    yield pipeline
    await pipeline.close()


async def test_the_canary_reads_its_text(pipeline) -> None:
    await canary.check(pipeline)


async def test_a_page_says_the_same_bits_alone_and_among_sixteen_callers(pipeline) -> None:
    names = ["rapid_en.jpg", "tjs_cosmic.png", "poj_test.jpg", "one line eight times"]
    pages = {name: page(name) for name in names[:3]}
    pages[names[3]] = np.tile(page("tjs_chinese.png"), (8, 1, 1))  # eight crops of one width at once
    alone = {name: says(await pipeline.read(pages[name])) for name in names}
    before = pipeline.batchers[1].stats()
    together = await asyncio.gather(*(pipeline.read(pages[names[i % 4]]) for i in range(16)))
    after = pipeline.batchers[1].stats()
    for i, reading in enumerate(together):
        assert says(reading) == alone[names[i % 4]]
    assert after.taken - before.taken > after.batches - before.batches  # calls were shared


@pytest.mark.parametrize(("name", "rotation"), [("rot180.png", 180), ("rotL.png", 90), ("rotR.png", 270)])
async def test_a_turned_page_is_read_upright_and_its_quads_lie_on_the_page_as_displayed(
    pipeline, name, rotation
) -> None:
    pixels = page(f"tess_phototest_{name}")
    reading = await pipeline.read(pixels)
    assert reading.rotation == rotation
    assert text_of(reading).split() == (ACCURACY / "tess_phototest.txt").read_text("utf-8").split()
    first = reading.lines[0].quad
    corner = {180: (1, 1), 90: (0, 1), 270: (1, 0)}[rotation]  # of the page, where the text begins
    size = np.array(pixels.shape[1::-1])
    assert np.abs(first[0] / size - corner).max() < 0.25


async def test_a_blank_page_has_no_lines(pipeline) -> None:
    reading = await pipeline.read(np.full((1000, 800), 255, np.uint8))
    assert (reading.lines, reading.confidence, reading.uncertain) == ([], 0.0, False)


async def test_gray_and_colour_of_the_same_page_say_the_same(pipeline) -> None:
    gray = cv2.cvtColor(page("tjs_testocr.png"), cv2.COLOR_BGR2GRAY)
    colour = np.repeat(gray[:, :, np.newaxis], 3, axis=2)
    assert says(await pipeline.read(gray)) == says(await pipeline.read(colour))


async def test_a_line_longer_than_any_crop_is_read_whole(pipeline) -> None:
    sentence = " ".join(f"number {i} of many words" for i in range(9))
    pixels = np.full((64, 3400), 255, np.uint8)
    cv2.putText(pixels, sentence, (12, 42), cv2.FONT_HERSHEY_DUPLEX, 0.9, 0, 1, cv2.LINE_AA)
    reading = await pipeline.read(pixels)
    assert text_of(reading).replace("\n", " ") == sentence


class Faulty:
    """The real engine, with faults: the next `faults` calls fail."""

    def __init__(self, engine) -> None:
        self._engine = engine
        self.faults = 0

    def __getattr__(self, name: str):
        return getattr(self._engine, name)

    def run(self, inputs):
        if self.faults:
            self.faults -= 1
            raise RuntimeError("out of order")
        return self._engine.run(inputs)


@pytest_asyncio.fixture(loop_scope="module")
async def faulty(pipeline, monkeypatch):
    engine = Faulty(pipeline.detector.engine)
    monkeypatch.setattr(pipeline.detector, "engine", engine)
    return engine


async def test_an_engine_that_fails_once_is_asked_again(pipeline, faulty) -> None:
    faulty.faults = 1
    assert text_of(await pipeline.read(canary.picture())) == canary.TEXT


async def test_an_engine_that_fails_twice_fails_the_page_and_the_next_page_is_read(pipeline, faulty) -> None:
    faulty.faults = 2
    with pytest.raises(AffidavitError) as caught:
        await pipeline.read(canary.picture())
    assert caught.value.reason == "ENGINE_FAILED"
    assert text_of(await pipeline.read(canary.picture())) == canary.TEXT


async def test_a_caller_who_leaves_takes_his_crops_out_of_the_queue(pipeline) -> None:
    detection, recognition = pipeline.batchers
    before = recognition.stats()
    reading = asyncio.create_task(pipeline.read(page("sroie_333.jpg")))
    async with asyncio.timeout(60):
        while recognition.stats().depth < 20:
            await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    after = recognition.stats()
    assert (detection.stats().depth, after.depth) == (0, 0)
    assert after.cancelled > before.cancelled


def crops(recognizer: Recognizer, pixels: np.ndarray, width: int, number: int) -> list[Crop]:
    """Crops of one width class from different places of a page."""
    step = pixels.shape[0] // (number + 1)
    places = [
        np.array([[20, y], [20 + width, y], [20 + width, y + 47], [20, y + 47]], np.float32)
        for y in range(5, 5 + number * step, step)
    ]
    return [recognizer.crop(pixels, quad, width) for quad in places]


@pytest.mark.parametrize("width", [60, 200, 440])
async def test_a_crop_reads_the_same_bits_in_every_row_and_company(pipeline, width) -> None:
    recognizer = pipeline.recognizer
    mine, *others = crops(recognizer, page("sroie_120.jpg"), width, 8)
    readings = set()
    for rows in range(1, 9):
        for place in {0, rows // 2, rows - 1}:
            batch = [*others[: rows - 1]]
            batch.insert(place, mine)
            read = recognizer(batch)[place]
            readings.add(("".join(read.text), tuple(c.hex() for c in read.confidence), tuple(read.positions)))
    assert len(readings) == 1


async def test_a_crops_class_is_its_own_and_wide_crops_share_with_nobody(pipeline) -> None:
    recognizer = pipeline.recognizer
    pixels = np.zeros((50, 2000), np.uint8)
    quad = np.array([[0, 0], [100, 0], [100, 48], [0, 48]], np.float32)
    narrow = [recognizer.crop(pixels, quad, 100) for _ in range(2)]
    wide = [recognizer.crop(pixels, quad, 900) for _ in range(2)]
    assert [c.width_class for c in narrow + wide] == [128, 128, 960, 960]
    assert narrow[0].group == narrow[1].group
    assert wide[0].group != wide[1].group


async def test_where_rows_are_not_independent_every_call_is_full(pipeline) -> None:
    class Dependent(Faulty):
        """An engine whose answer depends on the number of rows, as a machine without that luck would have it."""

        rows = 0

        def run(self, inputs):
            self.rows = inputs["x"].shape[0]
            return [output + np.float32(1e-6) * self.rows for output in self._engine.run(inputs)]

    recognizer = pipeline.recognizer
    engine = Dependent(recognizer.engine)
    other = Recognizer(engine, pipeline.rules.recognition)
    (crop,) = crops(other, page("sroie_120.jpg"), 200, 1)
    assert not other.prove(crop)
    other([crop])
    assert engine.rows == pipeline.rules.recognition.most_rows
    assert recognizer.prove(crop)
