"""From readings to lines of text: words where blanks are, neighbours on a row joined, geometry of both."""

import math
from dataclasses import dataclass

import numpy as np
from affidavit.services.ocr.detection import Floats
from affidavit.services.ocr.longlines import part
from affidavit.services.ocr.recognition import Reading


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
    words: list[Word] = []
    for i, (begin, end) in enumerate(spans):
        # A word reaches half-way to its neighbours, and to the line's ends.
        left = _between(reading, spans[i - 1][1] - 1, begin) if i else 0.0
        right = _between(reading, end - 1, spans[i + 1][0]) if i + 1 < len(spans) else float(width)
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


def joined(first: Line, second: Line) -> Line:
    """Two pieces of one row as one line. Its quad runs from the first's left edge to the second's right edge."""
    quad = np.stack([first.quad[0], second.quad[1], second.quad[2], first.quad[3]])
    return Line(
        f"{first.text} {second.text}", quad, first.confidence + second.confidence, first.words + second.words
    )


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


def _between(reading: Reading, before: int, after: int) -> float:
    return (reading.positions[before] + reading.positions[after]) / 2
