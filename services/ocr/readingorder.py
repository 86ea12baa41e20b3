"""The order in which people read a page's lines: columns, then rows.

The page is looked at along its own text, so that a turned or skewed page needs no case of its own. Then, recursively:

1. Find the vertical gutter with the most text on the poorer of its two sides, counting only stretches of the page that
   look like two columns of prose: both sides have several rows, wide enough and well filled.
2. Lines that cross the gutter (headings, full-width paragraphs) cut the page into bands, read from the top; a band in
   two columns is read left, then right, and each of its columns is looked at again. A line that crosses the gutter
   with text of both columns beside it (a pull quote) ends neither: it is read between them.
3. Where no gutter holds, lines are read in rows, left to right: tables, forms, receipts.

Measured on the 58 accuracy pages with the boxes of this pipeline: CER 0.052; in the order of the boxes' tops 0.33; in
the order of the truth about 0.05.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from affidavit.services.ocr.geometry import Floats, text_direction

# A column is at least so many rows high: two short lines beside each other are a row of a form ...
_MIN_ROWS = 3
# ... at least so many line heights wide: labels of a form are narrower, columns of a magazine have 12 and more ...
_MIN_ASPECT = 6.0
# ... and its rows cover this share of its width on average: prose 0.8 and more, label and value less than half.
_MIN_FILL = 0.6
# The poorer side of a gutter holds more than this share of what the lines crossing it hold.
_MIN_SIDE = 0.12
# Detection draws a box so many heights wider than its text, on each side.
_MARGIN = 0.25
# A box may reach so many heights of its own across a gutter before it counts as crossing it.
_SLACK = 0.5
# The middles of two boxes of one row differ by less than this share of their height.
_ROW = 0.5


@dataclass(frozen=True)
class Placed:
    """A line's place along the page's own text, in pixels."""

    index: int
    left: float
    right: float
    middle: float  # of its height
    height: float

    @property
    def width(self) -> float:
        return self.right - self.left


class _Parts(NamedTuple):
    """A stretch of the page as a gutter divides it."""

    left: list[Placed]
    across: list[Placed]
    right: list[Placed]

    def poorer(self) -> float:
        """Text on the poorer side, as length of lines."""
        return min(sum(p.width for p in self.left), sum(p.width for p in self.right))


class _Band(NamedTuple):
    """A stretch of the page from left to right; `parts` when it is in two columns."""

    lines: list[Placed]
    parts: _Parts | None


def reading_order(quads: Floats) -> list[list[int]]:
    """Rows of indices of `quads`, in reading order; within a row from left to right.

    Args:
        quads: (n, 4, 2), corners clockwise from each text's own top-left, pixels, y down.
    """
    return [[placed.index for placed in row] for row in _order(placed_along_text(quads))]


def placed_along_text(quads: Floats) -> list[Placed]:
    """Each quad in the frame whose x axis is the page's writing direction, less the margin that detection adds."""
    if not len(quads):
        return []
    along = text_direction(quads)
    down = np.array([-along[1], along[0]])
    x, y = quads @ along, quads @ down
    height = np.maximum(np.abs(y[:, 3] + y[:, 2] - y[:, 0] - y[:, 1]) / 2, 1.0)
    ends = np.sort(np.stack([x[:, 0] + x[:, 3], x[:, 1] + x[:, 2]]) / 2, axis=0)
    margin = np.minimum(_MARGIN * height, (ends[1] - ends[0]) / 4)
    places = zip(ends[0] + margin, ends[1] - margin, y.mean(axis=1), height, strict=True)
    return [Placed(i, *map(float, place)) for i, place in enumerate(places)]


def _order(lines: list[Placed]) -> list[list[Placed]]:
    gutter = _gutter(lines)
    if gutter is None:
        return rows(lines)
    ordered: list[list[Placed]] = []
    for band in _bands(lines, gutter):
        for part in band.parts or (band.lines,):
            ordered += _order(part)
    return ordered


def rows(lines: Sequence[Placed]) -> list[list[Placed]]:
    """Lines that stand side by side, rows from the top, lines from the left."""
    found: list[list[Placed]] = []
    for line in sorted(lines, key=lambda p: (p.middle, p.left)):
        row = found[-1] if found else None
        if row and _same_row(row, line):
            row.append(line)
        else:
            found.append([line])
    return [sorted(row, key=lambda p: p.left) for row in found]


def _same_row(row: list[Placed], line: Placed) -> bool:
    middle = sum(p.middle for p in row) / len(row)
    height = min(line.height, sum(p.height for p in row) / len(row))
    return line.middle - middle < _ROW * height


def _gutter(lines: list[Placed]) -> float | None:
    """Where the page falls into two columns, along x; None where it does not."""
    if len(lines) < 2 * _MIN_ROWS:
        return None
    edges = np.unique([edge for line in lines for edge in (line.left, line.right)])
    best, most = None, 0.0
    candidates = [(_divide(lines, x), x) for x in ((edges[:-1] + edges[1:]) / 2).tolist()]
    for parts, x in sorted(candidates, key=lambda c: (-c[0].poorer(), c[1])):
        # No band of it can hold more than the whole, and the rest holds less.
        if parts.poorer() <= most:
            break
        if parts.poorer() <= _MIN_SIDE * sum(p.width for p in parts.across):
            continue
        held = sum(band.parts.poorer() for band in _bands(lines, x) if band.parts)
        if held > most:
            best, most = x, held
    return best


def _divide(lines: Sequence[Placed], gutter: float) -> _Parts:
    parts = _Parts([], [], [])
    for line in lines:
        slack = _SLACK * line.height
        if line.left < gutter - slack and line.right > gutter + slack:
            parts.across.append(line)
        elif line.left + line.right < 2 * gutter:
            parts.left.append(line)
        else:
            parts.right.append(line)
    return parts


def _bands(lines: list[Placed], gutter: float) -> list[_Band]:
    """The page from top to bottom: stretches in two columns, and what stands between them."""
    parts = _divide(lines, gutter)
    beside = parts.left + parts.right
    quotes = [line for line in parts.across if _has_both_sides(line, beside)]
    cuts = sorted((line for line in parts.across if line not in quotes), key=lambda p: p.middle)
    rest = sorted(beside + quotes, key=lambda p: p.middle)
    bands: list[_Band] = []
    for cut in [*cuts, None]:
        above = [line for line in rest if cut is None or line.middle < cut.middle]
        rest = rest[len(above) :]
        divided = _divide(above, gutter)
        if _is_column(divided.left) and _is_column(divided.right):
            bands.append(_Band(above, divided))
            above = []
        if cut:
            above.append(cut)
        # What is not in columns stays together, so that it is looked at as a whole.
        if above and bands and bands[-1].parts is None:
            bands[-1].lines.extend(above)
        elif above:
            bands.append(_Band(above, None))
    return bands


def _has_both_sides(line: Placed, beside: list[Placed]) -> bool:
    level = [p for p in beside if abs(p.middle - line.middle) < (p.height + line.height) / 2]
    on_left = any(p.right <= line.left + _SLACK * p.height for p in level)
    return on_left and any(p.left >= line.right - _SLACK * p.height for p in level)


def _is_column(lines: list[Placed]) -> bool:
    found = rows(lines)
    if len(found) < _MIN_ROWS:
        return False
    width = max(p.right for p in lines) - min(p.left for p in lines)
    if width < _MIN_ASPECT * float(np.median([p.height for p in lines])):
        return False
    return sum(min(1.0, sum(p.width for p in row) / width) for row in found) / len(found) >= _MIN_FILL
