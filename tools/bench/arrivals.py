"""Arrivals of text lines at a recogniser, made once from a fixed seed and the same ever after.

Pages come at random (Poisson); a page's lines come together, as detection finds them: most of text width, some short
(headings, table cells), few long. Only integers come out, so that a trace is the same on every machine.
"""

import random
from dataclasses import dataclass

SEED = 20260801


@dataclass(frozen=True)
class Arrival:
    """One line: when it arrives (microseconds from the start) and its width at the recogniser's height (pixels)."""

    at_us: int
    width: int


def record(pages: int, pages_per_s: float, seed: int = SEED) -> list[Arrival]:
    """The lines of `pages` pages in the order of arrival."""
    chance = random.Random(seed)
    arrivals: list[Arrival] = []
    at_s = 0.0
    for _ in range(pages):
        at_s += chance.expovariate(pages_per_s)
        for line in range(chance.randint(8, 50)):
            late_us = line * 80  # cropping a line takes about so long
            arrivals.append(Arrival(int(at_s * 1e6) + late_us, _width(chance)))
    return sorted(arrivals, key=lambda arrival: arrival.at_us)


def _width(chance: random.Random) -> int:
    kind = chance.random()
    if kind < 0.35:
        return chance.randint(40, 200)
    if kind < 0.90:
        return chance.randint(350, 800)
    return chance.randint(900, 1600)
