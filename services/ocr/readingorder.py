"""The order in which people read a page's lines: columns, then rows.

The page is looked at along its own text: every quad is turned into the frame of the page's writing direction, so that
a turned or skewed page needs no case of its own. Then, recursively:

1. Find the best vertical gutter: the place with most text on the poorer of its two sides, against the text that spans
   it.
2. Lines that span the gutter (headings, full-width paragraphs) cut the page into bands. A band that looks like two
   columns (both sides filled with lines of their own) is read left, then right; anything else waits for step 3.
3. Where no gutter holds, lines are read in rows, left to right: tables, forms and receipts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A column is at least so many rows high: two short lines beside each other are a row of a form.
MIN_ROWS = 3
# Share of a column's width that its rows cover on average. Prose covers 0.8 and more, label and value less than half.
MIN_FILL = 0.6
# The poorer side of a gutter holds at least this share of what the lines spanning it hold.
MIN_SIDE = 0.12
# Detection draws a box so many heights wider than its text, on each side.
DETECTION_MARGIN = 0.25
# A box may reach so many heights of its own across a gutter before it counts as spanning it.
SLACK = 0.5
# A gutter is at least so many line heights wide ...
MIN_GUTTER = 0.35


@dataclass(frozen=True)
class _Box:
    """A line's place along the page's own text, in pixels."""

    index: int
    left: float
    right: float
    middle: float  # of its height
    height: float

    @property
    def mass(self) -> float:
        return self.right - self.left


def reading_order(quads: NDArray[np.float32]) -> list[int]:
    """Indices of `quads` in reading order.

    Args:
        quads: (n, 4, 2), corners clockwise from each text's own top-left, pixels, y down.
    """
    return [box.index for box in _order(_along_the_text(quads))]


def text_direction(quads: NDArray[np.float32]) -> NDArray[np.float64]:
    """Unit vector in which the page's text runs: the mean over its lines, long lines counting more."""
    along = (quads[:, 1] - quads[:, 0] + quads[:, 2] - quads[:, 3]).astype(np.float64)
    lengths = np.hypot(along[:, 0], along[:, 1])
    angles = np.arctan2(along[:, 1], along[:, 0])
    # The weighted median of the angles around their mean direction: one crooked line does not turn the page.
    mean = np.angle(np.sum(along[:, 0] + 1j * along[:, 1]))
    off = np.angle(np.exp(1j * (angles - mean)))
    rank = np.argsort(off, kind="stable")
    half = np.searchsorted(np.cumsum(lengths[rank]), lengths.sum() / 2)
    angle = mean + off[rank[min(half, len(rank) - 1)]]
    return np.array([np.cos(angle), np.sin(angle)])


def _along_the_text(quads: NDArray[np.float32]) -> list[_Box]:
    if not len(quads):
        return []
    along = text_direction(quads)
    down = np.array([-along[1], along[0]])
    x, y = quads @ along, quads @ down
    top, bottom = (y[:, 0] + y[:, 1]) / 2, (y[:, 2] + y[:, 3]) / 2
    margin = np.minimum(DETECTION_MARGIN * np.abs(bottom - top), np.abs(x[:, 1] - x[:, 0]) / 4)
    left, right = (x[:, 0] + x[:, 3]) / 2 + margin, (x[:, 1] + x[:, 2]) / 2 - margin
    return [
        _Box(i, min(l, r), max(l, r), (t + b) / 2, max(abs(b - t), 1.0))
        for i, (l, r, t, b) in enumerate(zip(left.tolist(), right.tolist(), top.tolist(), bottom.tolist(), strict=True))
    ]


def _order(boxes: list[_Box]) -> list[_Box]:
    gutter = _gutter(boxes)
    if gutter is None:
        return [box for row in rows(boxes) for box in row]
    ordered: list[_Box] = []
    for band in _bands(boxes, gutter):
        if band.columns:
            for side in ("left", "inset", "right"):
                ordered += _order([b for b in band.boxes if _side(b, gutter, band.boxes) == side])
        else:
            ordered += _order(band.boxes)
    return ordered


def rows(boxes: list[_Box]) -> list[list[_Box]]:
    """Boxes that stand side by side, rows from the top, boxes from the left."""
    found: list[list[_Box]] = []
    for box in sorted(boxes, key=lambda b: (b.middle, b.left)):
        row = found[-1] if found else None
        if row and _same_row(row, box):
            row.append(box)
        else:
            found.append([box])
    return [sorted(row, key=lambda b: b.left) for row in found]


def _same_row(row: list[_Box], box: _Box) -> bool:
    middle = sum(b.middle for b in row) / len(row)
    height = min(box.height, sum(b.height for b in row) / len(row))
    return box.middle - middle < 0.5 * height


@dataclass(frozen=True)
class _Band:
    columns: bool
    boxes: list[_Box]


def _spans(box: _Box, gutter: float) -> bool:
    """Whether the box crosses the gutter by more than a box drawn too wide does."""
    slack = SLACK * box.height
    return box.left < gutter - slack and box.right > gutter + slack


def _is_left(box: _Box, gutter: float) -> bool:
    return (box.left + box.right) / 2 < gutter


def _bands(boxes: list[_Box], gutter: float) -> list[_Band]:
    """The page from top to bottom: stretches in two columns, and stretches between them."""
    spanning = [b for b in boxes if _spans(b, gutter)]
    beside = sorted((b for b in boxes if not _spans(b, gutter)), key=lambda b: b.middle)
    insets = [b for b in spanning if _inset(b, beside, gutter)]
    cuts = sorted((b for b in spanning if b not in insets), key=lambda b: b.middle)
    bands: list[_Band] = []

    def close(group: list[_Box], columns: bool) -> None:
        if group and not columns and bands and not bands[-1].columns:
            bands[-1].boxes.extend(group)
        elif group:
            bands.append(_Band(columns, group))

    beside = sorted(beside + insets, key=lambda b: b.middle)
    for cut in [*cuts, None]:
        group = [b for b in beside if cut is None or b.middle < cut.middle]
        beside = beside[len(group) :]
        close(group, _two_columns(group, gutter))
        if cut:
            close([cut], columns=False)
    return bands


def _inset(box: _Box, beside: list[_Box], gutter: float) -> bool:
    """Whether lines of both columns run past the box: a caption or pull quote, which ends neither column."""
    level = [b for b in beside if abs(b.middle - box.middle) < (b.height + box.height) / 2]
    return any(b.right <= box.left + SLACK * b.height for b in level) and any(b.left >= box.right - SLACK * b.height for b in level)


def _side(box: _Box, gutter: float, boxes: list[_Box]) -> str:
    if _spans(box, gutter):
        return "inset"
    return "left" if _is_left(box, gutter) else "right"


def _two_columns(boxes: list[_Box], gutter: float) -> bool:
    left = [b for b in boxes if _side(b, gutter, boxes) == "left"]
    right = [b for b in boxes if _side(b, gutter, boxes) == "right"]
    if not all(len(rows(side)) >= MIN_ROWS and _fill(side) >= MIN_FILL for side in (left, right)):
        return False
    height = float(np.median([b.height for b in boxes]))
    width = np.quantile([b.left for b in right], 0.1) - np.quantile([b.right for b in left], 0.9)
    return bool(width >= MIN_GUTTER * height)


def _fill(side: list[_Box]) -> float:
    """Share of the column's width that its rows cover, on average."""
    width = max(b.right for b in side) - min(b.left for b in side)
    covered = [min(1.0, sum(b.mass for b in row) / width) for row in rows(side)]
    return sum(covered) / len(covered)


def _gutter(boxes: list[_Box]) -> float | None:
    """Where the page falls into two columns, along x; None where it does not."""
    if len(boxes) < 2 * MIN_ROWS:
        return None
    best, best_score = None, 0.0
    edges = np.unique(np.concatenate([[b.left for b in boxes], [b.right for b in boxes]]))
    for x in ((edges[:-1] + edges[1:]) / 2).tolist():
        spans = sum(b.mass for b in boxes if _spans(b, x))
        left = sum(b.mass for b in boxes if not _spans(b, x) and _is_left(b, x))
        right = sum(b.mass for b in boxes if not _spans(b, x) and not _is_left(b, x))
        if min(left, right) <= max(MIN_SIDE * spans, best_score):
            continue
        score = 0.0
        for band in _bands(boxes, x):
            if band.columns:
                l = sum(b.mass for b in band.boxes if _side(b, x, []) == "left"); r = sum(b.mass for b in band.boxes if _side(b, x, []) == "right")
                score += min(l, r)
        if score > best_score:
            best, best_score = x, score
    return best
