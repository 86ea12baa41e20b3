"""From readings to lines of text: words where blanks are, neighbours on a row joined, geometry of both."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from affidavit.services.ocr.geometry import Floats, part, sides
from affidavit.services.ocr.recognition import STEP, Reading

# Two boxes of a row are one line when their heights differ by less than this factor ...
_ALIKE = 0.7
# ... and when so many heights or less are between them (boxes overlap a little where text runs on).
_WIDE_BLANK = 0.6


@dataclass(frozen=True)
class Word:
    """Text between blanks. `quad`: (4, 2) float32, page pixels, clockwise from the text's own top-left."""

    text: str
    quad: Floats
    confidence: tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """A line of text; `confidence` of each character without blanks."""

    text: str
    quad: Floats
    confidence: tuple[float, ...]
    words: tuple[Word, ...]


def mean(confidence: tuple[float, ...]) -> float:
    """Mean of characters' confidence; fsum, so that its bits do not depend on the order of summing."""
    return math.fsum(confidence) / len(confidence) if confidence else 0.0


def line(reading: Reading, quad: Floats, width: int) -> Line | None:
    """The line that a reading says; None when there is nothing but blanks.

    Args:
        width: pixels of the quad at 48 pixels of height, the unit of the reading's positions.
    """
    spans = _word_spans(reading.text)
    half = _half_character(reading, spans)
    words: list[Word] = []
    for i, (begin, end) in enumerate(spans):
        left = _edge(reading.positions[begin], -half, reading.positions[spans[i - 1][1] - 1]) if i else 0.0
        last = i + 1 == len(spans)
        right = float(width) if last else _edge(reading.positions[end - 1], half, reading.positions[spans[i + 1][0]])
        words.append(
            Word(
                "".join(reading.text[begin:end]),
                part(quad, min(left / width, 1.0), min(right / width, 1.0)),
                tuple(reading.confidence[begin:end]),
            )
        )
    if not words:
        return None
    confidence = tuple(sure for word in words for sure in word.confidence)
    return Line(" ".join(word.text for word in words), quad, confidence, tuple(words))


def joined(row: list[Line]) -> list[Line]:
    """A row's lines with neighbours that belong together as one: what detection broke at a wide blank.

    Args:
        row: lines beside each other, left to right.
    """
    result: list[Line] = []
    for line in row:
        if result and _continues(result[-1], line):
            first = result.pop()
            quad = np.stack([first.quad[0], line.quad[1], line.quad[2], first.quad[3]])
            text = f"{first.text} {line.text}"
            line = Line(text, quad, first.confidence + line.confidence, first.words + line.words)
        result.append(line)
    return result


def _continues(first: Line, second: Line) -> bool:
    """Whether the second is as high as the first and follows it within a wide blank."""
    heights = sides(np.stack([first.quad, second.quad]))[:, 1]
    if heights.min() < _ALIKE * heights.max():
        return False
    gap = (second.quad[0] + second.quad[3] - first.quad[1] - first.quad[2]) / 2
    along = first.quad[1] - first.quad[0]
    distance = float(gap @ along / max(np.hypot(along[0], along[1]), 1.0))
    return abs(distance) < _WIDE_BLANK * float(heights.mean())


def _word_spans(text: list[str]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    begin = 0
    for i, character in enumerate([*text, " "]):
        if not character.isspace():
            continue
        if begin < i:
            spans.append((begin, i))
        begin = i + 1
    return spans


def _half_character(reading: Reading, spans: list[tuple[int, int]]) -> float:
    """Half the usual distance of two characters of a word, in the reading's pixels."""
    steps = [after - before for begin, end in spans for before, after in pairwise(reading.positions[begin:end])]
    return float(np.median(steps)) / 2 if steps else float(STEP)


def _edge(character: float, half: float, neighbour: float) -> float:
    """Where a word ends: half a character outside its last one, and not beyond the middle to its neighbour."""
    middle = (character + neighbour) / 2
    return max(character + half, middle) if half < 0 else min(character + half, middle)
