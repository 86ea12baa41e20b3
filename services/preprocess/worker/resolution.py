"""How many pixels a page gets. The whole policy.

A page made of vectors is drawn at 200 dpi, a small one finer. A page that is a scan is drawn at the scan's own
resolution: finer would invent pixels, coarser would lose strokes. A picture keeps its pixels. Whatever comes out is
then made to fit the limits, before anything is allocated.
"""

import math

PAGE_DPI = 200.0
# A page drawn at 200 dpi that would be smaller than this is drawn finer: labels, stamps, shrunk pages.
LEAST_SIDE = 1_000
MOST_DPI = 600.0
# A scan: small print needs 150 dpi, if only by interpolation; beyond 300 dpi, which is 3508 pixels on A4, nothing reads
# better. A poster has pixels enough at less, a stamp's picture may need more.
SCAN_LEAST_DPI = 150.0
SCAN_MOST_DPI = 300.0
SCAN_SIDE = 3_508


def page_dpi(width_pt: float, height_pt: float, scan_dpi: float) -> float:
    """Dots per inch at which to draw a PDF page.

    Args:
        width_pt, height_pt: the page as displayed, points.
        scan_dpi: resolution of the picture that fills the page; 0 when there is none.
    """
    long_inches = max(width_pt, height_pt) / 72
    if scan_dpi:
        enough = SCAN_SIDE / long_inches
        return min(max(scan_dpi, min(SCAN_LEAST_DPI, enough)), max(SCAN_MOST_DPI, enough))
    return min(max(PAGE_DPI, LEAST_SIDE / long_inches), MOST_DPI)


def fit(width: float, height: float, most_pixels: int, most_side: int) -> tuple[int, int]:
    """Whole pixels for a picture of width x height that may have at most so many pixels and so long a side."""
    scale = min(1.0, math.sqrt(most_pixels / (width * height)), most_side / max(width, height))
    columns, rows = max(1, round(width * scale)), max(1, round(height * scale))
    while columns * rows > most_pixels:  # rounded up on both sides
        columns, rows = (columns - 1, rows) if columns > rows else (columns, rows - 1)
    return columns, rows
