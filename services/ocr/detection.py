"""Where a page's lines are: differentiable binarization (DB, arXiv:1911.08947) and its post-processing.

The engine says for each pixel how likely it belongs to the core of a line. Cores are found by thresholding and grown
back to the line's size.

A page is looked at small at first, because detection costs 0.9 us a pixel and a line of 14 pixels is found as surely as
one of 40: on the 58 accuracy pages a long side of 960 finds the same lines as 2000 in a third of the time. Where the
lines found are smaller than that, the page is looked at once more, larger. A page that is smaller itself is enlarged:
two lines of 10 pixels, one close below the other, are found as one otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from affidavit._native import resize_normalize
from affidavit.libs.engines import Engine
from affidavit.services.ocr.geometry import Floats, Pixels, sides
from affidavit.services.ocr.rules import DetectionRules

MEAN = STD = (0.5, 0.5, 0.5)
# The network halves five times; multiples of 64 keep the number of tensor shapes small and bend a page by 3 % at most.
_MULTIPLE = 64
# A strip (a single line of text) is not shrunk below this height.
_LEAST_SHORT_SIDE = 160
# Height, at the larger look, that lines are brought to.
_AIM = 18.0
_LEAST_CORE = 3.0  # pixels; smaller cores are specks
_NO_BOXES: Floats = np.zeros((0, 4, 2), np.float32)


@dataclass(frozen=True)
class DetectionJob:
    """A page to be looked at, its long side brought to `long_side` pixels."""

    page: Pixels
    long_side: int


@dataclass(frozen=True)
class Detected:
    """Lines found at one look.

    Attributes:
        quads: (n, 4, 2) float32, page pixels, clockwise from the page's top-left corner; may reach out of the page.
        look_again: long side for a larger look, or 0.
    """

    quads: Floats
    look_again: int


class Detector:
    """DB detection on an engine. Blocking: runs in an engine thread."""

    def __init__(self, engine: Engine, rules: DetectionRules) -> None:
        self.engine = engine
        self._rules = rules

    def __call__(self, jobs: list[DetectionJob]) -> list[Detected]:
        return [self._detect(job) for job in jobs]

    def _detect(self, job: DetectionJob) -> Detected:
        height, width = job.page.shape[:2]
        tensor_height, tensor_width = tensor_size(height, width, job.long_side, self._rules.most_enlarged)
        shrinks = tensor_height < height or tensor_width < width
        tensor = resize_normalize(job.page, tensor_height, tensor_width, MEAN, STD, area=shrinks)
        probability = self.engine.run({"x": tensor[np.newaxis]})[0][0, 0]
        quads = text_quads(probability, self._rules)
        look_again = self._look_again(quads, job, max(height, width)) if shrinks else 0
        return Detected(quads * np.array([width / tensor_width, height / tensor_height], np.float32), look_again)

    def _look_again(self, quads: Floats, job: DetectionJob, page_side: int) -> int:
        if not len(quads) or job.long_side > self._rules.long_side:
            return 0
        small = float(np.percentile(sides(quads).min(axis=1), 25))
        if small >= self._rules.small_text:
            return 0
        return min(int(job.long_side * _AIM / small), self._rules.finest_long_side, page_side)


def tensor_size(height: int, width: int, long_side: int, most_enlarged: float) -> tuple[int, int]:
    """Height and width of the tensor that a page of `height` x `width` pixels becomes."""
    scale = max(
        min(most_enlarged, long_side / max(height, width)),
        min(1.0, _LEAST_SHORT_SIDE / min(height, width)),
    )
    # The longest page of the largest bitmap is 65535 x 1: never more than four times the side that was asked for.
    longest = 4 * long_side
    return _quantised(height * scale, longest), _quantised(width * scale, longest)


def _quantised(side: float, longest: int) -> int:
    return max(_MULTIPLE, min(round(side / _MULTIPLE), longest // _MULTIPLE) * _MULTIPLE)


def text_quads(probability: Floats, rules: DetectionRules) -> Floats:
    """Rectangles around the lines of a probability map, (n, 4, 2), in the map's pixels."""
    # Closing gaps of one pixel keeps a core whole where the map just touches the threshold.
    core = cv2.dilate((probability > rules.threshold).astype(np.uint8), np.ones((2, 2), np.uint8))
    contours, _ = cv2.findContours(core, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    quads: list[Floats] = []
    for contour in contours:
        center, (width, height), angle = cv2.minAreaRect(contour)
        if min(width, height) < _LEAST_CORE:
            continue
        if _mean_inside(probability, _corners(center, width, height, angle)) < rules.box_threshold:
            continue
        # Offsetting a rectangle by d and taking the smallest rectangle around it again only makes it 2 d longer and
        # wider, so no polygon clipping is needed.
        grow = width * height * rules.unclip_ratio / (width + height)
        quads.append(_from_top_left(_corners(center, width + grow, height + grow, angle)))
        if len(quads) == rules.max_boxes:
            break
    return np.array(quads, np.float32) if quads else _NO_BOXES


def _corners(center: Sequence[float], width: float, height: float, angle: float) -> Floats:
    return cv2.boxPoints(((center[0], center[1]), (width, height), angle)).astype(np.float32)


def _mean_inside(probability: Floats, corners: Floats) -> float:
    height, width = probability.shape
    left, top = np.clip(np.floor(corners.min(axis=0)).astype(int), 0, [width - 1, height - 1])
    right, bottom = np.clip(np.ceil(corners.max(axis=0)).astype(int), 0, [width - 1, height - 1])
    inside = np.zeros((bottom - top + 1, right - left + 1), np.uint8)
    cv2.fillPoly(inside, [(corners - [left, top]).astype(np.int32)], 1)
    return cv2.mean(probability[top : bottom + 1, left : right + 1], inside)[0]


def _from_top_left(corners: Floats) -> Floats:
    """The corners clockwise from the top-left one, the text taken to run from left to right or downwards."""
    by_x = corners[np.argsort(corners[:, 0], kind="stable")]
    left = by_x[:2][np.argsort(by_x[:2, 1], kind="stable")]
    right = by_x[2:][np.argsort(by_x[2:, 1], kind="stable")]
    return np.stack([left[0], right[0], right[1], left[1]])
