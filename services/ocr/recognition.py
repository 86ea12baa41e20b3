"""What a line says: crops of one width class through the engine, then CTC.

A crop's class depends on nothing but its own width, and a call holds crops of one class only, so that a crop's answer
is the same bits whoever shares its call. Two more things make that true, and `prove` checks them at start:
- rows of a call do not see each other;
- a call never has one row where it could have two: ONNX Runtime computes a single row with other instructions.

Narrow crops share calls. Wide ones have a call each: on a CPU one row of 640 pixels costs 33 ms and four cost 159 ms
(2nd-level cache), so sharing would only add the padding of half-filled calls.
"""

import math
import time
from dataclasses import dataclass
from itertools import count

import numpy as np

from affidavit._native import CtcPath, crop_normalize_into, ctc_greedy
from affidavit.libs.engines import Engine
from affidavit.libs.errors import AffidavitError
from affidavit.services.ocr.detection import MEAN, STD
from affidavit.services.ocr.geometry import Floats, Pixels
from affidavit.services.ocr.rules import RecognitionRules

HEIGHT = 48
STEP = 8  # pixels of a time step
# Groups of the scheduler: a shared class's own width, or a number of its own for a crop that is alone in its call.
_FIRST_LONE_GROUP = 1 << 16
_GROUPS = 1 << 31


@dataclass(frozen=True)
class Crop:
    """A line, or a piece of one, to be read.

    Attributes:
        quad: (4, 2) float32, page pixels, clockwise from the text's top-left.
        width: pixels that it has at 48 pixels of height.
        width_class: pixels of its tensor.
        group: whom it may share a call with.
    """

    page: Pixels
    quad: Floats
    width: int
    width_class: int
    group: int


@dataclass(frozen=True)
class Reading:
    """What a crop says.

    Attributes:
        text: one character an entry (an entry may be more than one code point).
        confidence: of each, 0 to 1.
        positions: of each, pixels from the crop's left at 48 pixels of height.
        started, finished: of the engine call, `time.perf_counter` seconds.
    """

    text: list[str]
    confidence: list[float]
    positions: list[float]
    started: float = 0.0
    finished: float = 0.0

    @property
    def mean_confidence(self) -> float:
        return math.fsum(self.confidence) / len(self.confidence) if self.confidence else 0.0


class Recognizer:
    """CTC recognition on an engine. Calling it blocks: it runs in engine threads."""

    def __init__(self, engine: Engine, rules: RecognitionRules) -> None:
        self.engine = engine
        self._rules = rules
        self._widths = rules.shared_widths + rules.lone_widths
        self._lone_groups = count()
        # The dictionary is the model's own: blank first, space last.
        self._characters = ["", *engine.metadata["character"].split("\n"), " "]
        self._least_rows = 2

    @property
    def widest(self) -> int:
        """Pixels of the longest crop that is read in one piece."""
        return self._widths[-1]

    def crop(self, page: Pixels, quad: Floats, width: int) -> Crop:
        """A crop in the narrowest class that holds it; `width` is at most `widest`."""
        width_class = next(w for w in self._widths if w >= width)
        shared = width_class in self._rules.shared_widths
        group = width_class if shared else _FIRST_LONE_GROUP + next(self._lone_groups) % _GROUPS
        return Crop(page, quad, width, width_class, group)

    def __call__(self, crops: list[Crop]) -> list[Reading]:
        started = time.perf_counter()
        shared = crops[0].group < _FIRST_LONE_GROUP
        batch = self._batch(crops, max(len(crops), self._least_rows if shared else 1))
        probabilities = self.engine.run({"x": batch})[0]
        if probabilities.shape[-1] != len(self._characters):
            raise AffidavitError("MODEL_UNVERIFIED", "recognition answers more or fewer classes than its dictionary")
        space = len(self._characters) - 1
        paths = ctc_greedy(probabilities[: len(crops)], space=space, least_space=self._rules.least_space)
        finished = time.perf_counter()
        return [self._reading(path, started, finished) for path in paths]

    def prove(self, crop: Crop) -> bool:
        """Whether this machine's engine gives a crop the same bits in every company; if not, calls become full ones.

        A call of always the same number of rows is the same computation for each row, so that is the way out.
        """
        full = self._rules.most_rows
        alone = self.engine.run({"x": self._batch([crop], self._least_rows)})[0]
        others = self._batch([crop] * full, full)
        others[1:-1] = -others[1:-1]
        together = self.engine.run({"x": others})[0]
        equal = bool(np.array_equal(together[0], alone[0]) and np.array_equal(together[-1], alone[0]))
        if not equal:
            self._least_rows = full
        return equal

    def _batch(self, crops: list[Crop], rows: int) -> Floats:
        batch = np.zeros((rows, 3, HEIGHT, crops[0].width_class), np.float32)
        for row, crop in enumerate(crops):
            crop_normalize_into(batch, row, crop.page, crop.quad, min(crop.width, crop.width_class), MEAN, STD)
        return batch

    def _reading(self, path: CtcPath, started: float, finished: float) -> Reading:
        text = [self._characters[index] for index in path.indices.tolist()]
        positions = ((path.positions + 0.5) * STEP).tolist()
        return Reading(text, path.confidence.tolist(), positions, started, finished)
