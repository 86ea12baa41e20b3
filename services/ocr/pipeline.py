"""The OCR pipeline, without a server: a page's pixels in, its lines in reading order out.

    pipeline = OcrPipeline(bundle, threads=2)
    reading = await pipeline.read(pixels)

Stages: detection (one or two looks) -> orientation -> recognition -> reading order. Engines run in native threads,
behind two batchers; everything else happens between them, so that many pages share the engines.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from affidavit.libs import canonicaljson
from affidavit.libs.batching import Batcher
from affidavit.libs.canonicaljson import Json
from affidavit.libs.engines.onnxruntime import OnnxRuntimeEngine
from affidavit.libs.errors import AffidavitError
from affidavit.libs.models import Bundle, load_weights
from affidavit.libs.telemetry import get_logger
from affidavit.services.ocr import lines, longlines
from affidavit.services.ocr.detection import Detected, DetectionJob, Detector
from affidavit.services.ocr.geometry import Floats, Pixels, part, sides, turned
from affidavit.services.ocr.lines import Line
from affidavit.services.ocr.orientation import CLEAR_ASPECT, orient
from affidavit.services.ocr.readingorder import reading_order
from affidavit.services.ocr.recognition import HEIGHT, Crop, Reading, Recognizer
from affidavit.services.ocr.rules import OcrRules

T = TypeVar("T")
Answer = TypeVar("Answer")
_log = get_logger("pipeline")

# A box higher than this many times its width holds no upright line.
_TALLEST_UPRIGHT = 3.0


@dataclass(frozen=True)
class Scheduling:
    """What may change while running; `affidavit._native.DynamicBatchScheduler` explains each."""

    max_batch: int = 4
    max_wait_us: int = 500_000
    sigma: float = 1.0
    hold_us: int = 2_000


@dataclass
class Timing:
    """Where a page's time went, seconds; never part of the answer."""

    detect: float = 0.0
    queue: float = 0.0
    recognition_began: float = field(default=float("inf"))
    recognition_ended: float = 0.0

    @property
    def recognize(self) -> float:
        return max(0.0, self.recognition_ended - self.recognition_began)


@dataclass(frozen=True)
class PageReading:
    """What a page says.

    Attributes:
        rotation: degrees clockwise by which the page had to be turned to be read.
        confidence: mean over the characters, 0 to 1; 0 for a blank page.
        uncertain: confidence is below the soft limit.
        lines: in reading order; quads in page pixels.
        boxes_digest: SHA-256 over the boxes that detection found, 32 bytes.
    """

    rotation: int
    confidence: float
    uncertain: bool
    lines: list[Line]
    boxes_digest: bytes
    timing: Timing


class OcrPipeline:
    """A bundle's models, loaded and ready. Made in the event loop that it will be used in.

    Args:
        threads: engine threads. Recognition has so many, each with a call of its own; a detection is spread over all.
        capacity: crops that may wait.

    Raises:
        AffidavitError: MODEL_UNVERIFIED when weights, card or rules are not what was pinned.
    """

    def __init__(
        self, bundle: Bundle, *, threads: int, scheduling: Scheduling = Scheduling(), capacity: int = 1 << 15
    ) -> None:
        self.bundle = bundle
        self.rules = bundle.rules(OcrRules)
        self._detector = Detector(_engine(bundle, "detection", threads), self.rules.detection)
        self._recognizer = Recognizer(_engine(bundle, "recognition", 1), self.rules.recognition)
        self._detection = Batcher[DetectionJob, Detected](
            "ocr-detection", self._detector, capacity=1024, max_batch=1, max_wait_us=0, hold_us=0
        )
        self._recognition = Batcher[Crop, Reading](
            "ocr-recognition",
            self._recognizer,
            capacity=capacity,
            max_batch=min(scheduling.max_batch, self.rules.recognition.most_rows),
            max_wait_us=scheduling.max_wait_us,
            sigma=scheduling.sigma,
            hold_us=scheduling.hold_us,
            threads=threads,
        )
        self._prove()

    @property
    def detector(self) -> Detector:
        return self._detector

    @property
    def recognizer(self) -> Recognizer:
        return self._recognizer

    @property
    def batchers(self) -> tuple[Batcher[DetectionJob, Detected], Batcher[Crop, Reading]]:
        return self._detection, self._recognition

    def configure(self, scheduling: Scheduling) -> None:
        """Change the scheduling of recognition while running."""
        self._recognition.configure(
            max_batch=min(scheduling.max_batch, self.rules.recognition.most_rows),
            max_wait_us=scheduling.max_wait_us,
            sigma=scheduling.sigma,
            hold_us=scheduling.hold_us,
        )

    async def close(self) -> None:
        await asyncio.gather(*(batcher.close() for batcher in self.batchers))

    async def read(self, page: Pixels, *, canary: bool = False) -> PageReading:
        """What a page says. The same pixels give the same reading, bit for bit, whoever else is reading.

        Args:
            page: uint8, (height, width) gray or (height, width, 3) BGR.
            canary: go before everything that waits.

        Raises:
            AffidavitError: ENGINE_FAILED when an engine failed twice on this page; QUEUE_FULL; DRAINING.
        """
        timing = Timing()
        boxes = await self._boxes(page, timing, canary)
        digest = _boxes_digest(boxes)

        async def read(quads: Floats) -> list[Reading]:
            return await self._read(page, quads, timing, canary)

        oriented = await orient(boxes, read, self.rules.orientation)
        quads = oriented.quads
        rest = [i for i in range(len(quads)) if i not in oriented.readings]
        ways = {i: _ways(quads[i]) for i in rest}
        tries = [(i, way) for i in rest for way in ways[i]]
        answers = await read(np.array([turned(quads[i], way) for i, way in tries], np.float32).reshape(-1, 4, 2))
        best: dict[int, tuple[Reading, Floats]] = {i: (r, quads[i]) for i, r in oriented.readings.items()}
        for (i, way), reading in zip(tries, answers, strict=True):
            if i not in best or reading.mean_confidence > best[i][0].mean_confidence:
                best[i] = reading, turned(quads[i], way)
        found = [lines.line(*best[i], _width(best[i][1])) for i in range(len(quads))]
        return await asyncio.to_thread(self._answer, [f for f in found if f], oriented.rotation, digest, timing)

    def _answer(self, found: list[Line], rotation: int, digest: bytes, timing: Timing) -> PageReading:
        confidence = lines.mean(tuple(sure for line in found for sure in line.confidence))
        uncertain = bool(found) and confidence < self.rules.min_confidence
        if not uncertain:
            # What is not text (ornaments, stains) reads unsurely; a page of nothing else is still not called blank.
            least = self.rules.recognition.min_line_confidence
            found = [line for line in found if lines.mean(line.confidence) >= least] or found
            confidence = lines.mean(tuple(sure for line in found for sure in line.confidence))
        quads = np.array([line.quad for line in found], np.float32).reshape(-1, 4, 2)
        ordered = [line for row in reading_order(quads) for line in lines.joined([found[i] for i in row])]
        return PageReading(rotation if found else 0, confidence, uncertain, ordered, digest, timing)

    async def _boxes(self, page: Pixels, timing: Timing, canary: bool) -> Floats:
        begin = time.perf_counter()
        long_side = self.rules.detection.long_side
        detected = await self._twice(self._detection, DetectionJob(page, long_side), 1.0, 0, canary)
        if detected.look_again:
            detected = await self._twice(self._detection, DetectionJob(page, detected.look_again), 1.0, 0, canary)
        timing.detect = time.perf_counter() - begin
        return detected.quads

    async def _read(self, page: Pixels, quads: Floats, timing: Timing, canary: bool) -> list[Reading]:
        """Each quad's reading; long ones in pieces."""
        widest = self._recognizer.widest
        parts = [longlines.pieces(page, quad, _width(quad), widest) for quad in quads]
        crops: list[Crop] = []
        for quad, of_line in zip(quads, parts, strict=True):
            width = _width(quad)
            for piece in of_line:
                whole = len(of_line) == 1
                sub = quad if whole else part(quad, piece.left / width, piece.right / width)
                crops.append(self._recognizer.crop(page, sub, piece.right - piece.left))
        # The costliest first: engines then finish a page together.
        rank = sorted(range(len(crops)), key=lambda i: (-crops[i].width_class, i))
        submitted = time.perf_counter()
        answers = await _all(
            self._twice(self._recognition, crops[i], float(crops[i].width_class), crops[i].group, canary) for i in rank
        )
        readings: dict[int, Reading] = dict(zip(rank, answers, strict=True))
        for reading in answers:
            timing.queue = max(timing.queue, reading.started - submitted)
            timing.recognition_began = min(timing.recognition_began, reading.started)
            timing.recognition_ended = max(timing.recognition_ended, reading.finished)
        flat = iter(range(len(crops)))
        return [longlines.join(of_line, [readings[next(flat)] for _ in of_line]) for of_line in parts]

    async def _twice(self, batcher: Batcher[T, Answer], item: T, cost: float, group: int, canary: bool) -> Answer:
        """The engine's answer; an engine that fails is asked once more."""
        try:
            return await batcher.submit(item, cost=cost, group=group, canary=canary)
        except AffidavitError as error:
            if error.reason != "ENGINE_FAILED":
                raise
            _log.warning("engine_retry", model=batcher.name, error=str(error))
        return await batcher.submit(item, cost=cost, group=group, canary=canary)

    def _prove(self) -> None:
        page = np.tile(np.arange(256, dtype=np.uint8), (HEIGHT, 1))
        quad = np.array([[0, 0], [255, 0], [255, 47], [0, 47]], np.float32)
        proved = self._recognizer.prove(self._recognizer.crop(page, quad, self.rules.recognition.shared_widths[-1]))
        _log.info("batches_proved", model=self._recognition.name, rows_independent=proved)


async def _all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Results in order; when one fails or the caller leaves, the others are cancelled: their crops leave the queue."""
    tasks = [asyncio.ensure_future(a) for a in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _boxes_digest(boxes: Floats) -> bytes:
    """SHA-256 over the RFC 8785 JSON of the boxes: eight integers each, 1/100 page pixel."""
    hundredths: list[Json] = [list[Json](box) for box in np.rint(boxes * 100).astype(int).reshape(-1, 8).tolist()]
    return hashlib.sha256(canonicaljson.dumps(hundredths)).digest()


def _ways(quad: Floats) -> tuple[int, ...]:
    """The ways in which a box is read on a page that is the right way up: tall ones may lie on their side."""
    width, height = sides(quad[np.newaxis])[0]
    if height < CLEAR_ASPECT * width:
        return (0,)
    return (90, 270) if height > _TALLEST_UPRIGHT * width else (0, 90, 270)


def _width(quad: Floats) -> int:
    """Pixels of a quad's text at 48 pixels of height."""
    width, height = sides(quad[np.newaxis])[0]
    return max(1, int(np.ceil(HEIGHT * width / max(height, 1.0))))


def _engine(bundle: Bundle, role: str, threads: int) -> OnnxRuntimeEngine:
    member = bundle.members.get(role)
    if member is None:
        raise AffidavitError("MODEL_UNVERIFIED", f"{bundle.file}: models: the OCR pipeline needs {role}")
    with load_weights(member) as weights:
        return OnnxRuntimeEngine(weights.path, model=member.card.model_id, threads=threads)
