"""Quads and pixels: the few things that every stage says of them.

A quad is (4, 2) float32, (x, y) in page pixels, clockwise from the text's own top-left corner.
"""

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]


def sides(quads: Floats) -> Floats:
    """(n, 2): each quad's width along its text and height across it."""
    width = np.maximum(_length(quads[:, 1] - quads[:, 0]), _length(quads[:, 2] - quads[:, 3]))
    height = np.maximum(_length(quads[:, 3] - quads[:, 0]), _length(quads[:, 2] - quads[:, 1]))
    return np.stack([width, height], axis=1)


def part(quad: Floats, left: float, right: float) -> Floats:
    """The part of a quad between two fractions of its width."""
    top, bottom = quad[1] - quad[0], quad[2] - quad[3]
    corners = [quad[0] + left * top, quad[0] + right * top, quad[3] + right * bottom, quad[3] + left * bottom]
    return np.stack(corners).astype(np.float32)


def turned(quads: Floats, rotation: int) -> Floats:
    """Quads that start at the corner which is the text's top-left once the page is turned clockwise by `rotation`."""
    return np.roll(quads, rotation // 90, axis=-2)


def text_direction(quads: Floats) -> NDArray[np.float64]:
    """Unit vector in which the page's text runs: the median over its lines, long lines counting more."""
    along = (quads[:, 1] - quads[:, 0] + quads[:, 2] - quads[:, 3]).astype(np.float64)
    mean = np.angle(np.sum(along[:, 0] + 1j * along[:, 1]))
    # Angles around the mean direction, so that the median has no seam at 180 degrees.
    off = np.angle((along[:, 0] + 1j * along[:, 1]) * np.exp(-1j * mean))
    rank = np.argsort(off, kind="stable")
    weight = np.cumsum(np.hypot(along[:, 0], along[:, 1])[rank])
    angle = mean + off[rank[min(int(np.searchsorted(weight, weight[-1] / 2)), len(rank) - 1)]]
    return np.array([np.cos(angle), np.sin(angle)])


def _length(vectors: Floats) -> Floats:
    return np.hypot(vectors[:, 0], vectors[:, 1])
