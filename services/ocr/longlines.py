"""Lines longer than the widest crop: cut at gaps, read with overlap, joined again."""

from dataclasses import dataclass

import numpy as np

from affidavit._native import crop_quad
from affidavit.services.ocr.geometry import Floats, Pixels
from affidavit.services.ocr.recognition import HEIGHT, Reading

# Pixels (at 48 of height) that a piece reaches past its cut: a whole character, so that each is whole in some piece.
OVERLAP = 48
# A cut may move by this share of a piece to find a gap.
_SLACK = 0.1
# A gap between words is about so wide.
_GAP = 13


@dataclass(frozen=True)
class Piece:
    """A part of a line, in pixels from the line's left at 48 of height; what it reads counts from `start` to `end`."""

    left: int
    right: int
    start: float
    end: float


def pieces(page: Pixels, quad: Floats, width: int, widest: int) -> list[Piece]:
    """The line as pieces of at most `widest` pixels; one piece when it fits."""
    if width <= widest:
        return [Piece(0, width, -np.inf, np.inf)]
    number = int(np.ceil((1 + 2 * _SLACK) * width / (widest - 2 * OVERLAP)))
    contrast = _contrast(crop_quad(page, quad, HEIGHT, width))
    reach = int(_SLACK * width / number)
    cuts: list[int] = []
    for i in range(1, number):
        target = round(i * width / number)
        near = np.arange(target - reach, target + reach + 1)
        # The emptiest place; of equally empty ones the nearest.
        cuts.append(int(near[np.lexsort((np.abs(near - target), contrast[near]))[0]]))
    starts, ends = [-np.inf, *cuts], [*cuts, np.inf]
    lefts = [0, *(cut - OVERLAP for cut in cuts)]
    rights = [*(cut + OVERLAP for cut in cuts), width]
    return [Piece(*piece) for piece in zip(lefts, rights, starts, ends, strict=True)]


def join(parts: list[Piece], readings: list[Reading]) -> Reading:
    """One reading of the line: from each piece what lies between its cuts.

    A blank at a cut may be seen by either piece, both or none of them; it is said once if either saw it.
    """
    if len(parts) == 1:
        return readings[0]
    text: list[str] = []
    confidence: list[float] = []
    positions: list[float] = []
    for piece, reading in zip(parts, readings, strict=True):
        for character, sure, offset in zip(reading.text, reading.confidence, reading.positions, strict=True):
            position = piece.left + offset
            blank = character == " "
            if blank and text and text[-1] == " " and position - positions[-1] < OVERLAP:
                continue
            if piece.start <= position < piece.end or (blank and _at_cut(piece, position)):
                text.append(character)
                confidence.append(sure)
                positions.append(position)
    order = sorted(range(len(text)), key=lambda i: (positions[i], i))
    return Reading(
        [text[i] for i in order],
        [confidence[i] for i in order],
        [positions[i] for i in order],
        min(r.started for r in readings),
        max(r.finished for r in readings),
    )


def _at_cut(piece: Piece, position: float) -> bool:
    return min(abs(position - piece.start), abs(position - piece.end)) < _GAP


def _contrast(line: Pixels) -> Floats:
    """How much ink stands in the columns around each one."""
    gray = line if line.ndim == 2 else line.mean(axis=2)
    rows = gray[4:-4].astype(np.float32)
    ink = rows.max(axis=0) - rows.min(axis=0)
    return np.convolve(ink, np.ones(_GAP, np.float32), mode="same").astype(np.float32)
