"""Which way is up: decided once for a page, by its lines together.

Tall boxes say that the page lies on its side; which of the two ways remain is right is told by reading a few lines: a
line read upside down has a mean confidence of 0.7 or less where the right way has 0.95. A 0/180 classifier of single
lines is not asked, because it turns upright lines over (typewriter "or er r r" in a shared page).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from affidavit.services.ocr.geometry import Floats, sides, turned
from affidavit.services.ocr.recognition import Reading
from affidavit.services.ocr.rules import OrientationRules

# A box so many times wider than high is a line that runs across the page ...
WIDE = 1.5
# ... and one so many times higher than wide one that runs along its side; between them stand upright letters ("I", "1")
# and short words that lie on their side.
TALL = 3.0
# Width over height of the lines that are asked first: long enough to be sure, short enough to be cheap.
_SAMPLE_ASPECT = 7.0


@dataclass(frozen=True)
class Orientation:
    """How a page stands.

    Attributes:
        rotation: degrees clockwise by which the page must be turned to be read.
        quads: (n, 4, 2), clockwise from each text's own top-left corner.
        readings: of the lines that were asked, by index, the right way up.
    """

    rotation: int
    quads: Floats
    readings: dict[int, Reading] = field(default_factory=dict[int, Reading])


async def orient(
    quads: Floats, read: Callable[[Floats], Awaitable[list[Reading]]], rules: OrientationRules
) -> Orientation:
    """The page's orientation. `quads` start at the page's top-left; `read` reads lines."""
    if not len(quads):
        return Orientation(0, quads)
    first, second = (90, 270) if _lies_on_its_side(quads) else (0, 180)
    asked = _sample(turned(quads, first), rules.sample)
    readings = await read(turned(quads, first)[asked])
    rotation, sure = first, _confidence(readings)
    if sure < rules.sure:
        others = await read(turned(quads, second)[asked])
        if _confidence(others) > sure:
            rotation, readings = second, others
    return Orientation(rotation, turned(quads, rotation), dict(zip(asked, readings, strict=True)))


def _lies_on_its_side(quads: Floats) -> bool:
    width, height = sides(quads).T
    tall = height[height >= TALL * width].sum()
    wide = width[width >= WIDE * height].sum()
    return bool(tall > wide)


def _sample(quads: Floats, number: int) -> list[int]:
    width, height = sides(quads).T
    aspect = width / np.maximum(height, 1.0)
    return np.argsort(np.abs(np.log(aspect / _SAMPLE_ASPECT)), kind="stable")[:number].tolist()


def _confidence(readings: list[Reading]) -> float:
    characters = sum(len(r.confidence) for r in readings)
    return sum(sum(r.confidence) for r in readings) / characters if characters else 0.0
