"""Pages get the pixels that recognition needs, and never more than the limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from affidavit.services.preprocess.worker.resolution import fit, page_dpi

A4 = (595.0, 842.0)


@pytest.mark.parametrize(
    ("page", "scan_dpi", "dpi"),
    [
        (A4, 0, 200),  # vectors
        ((144.0, 72.0), 0, 500),  # a label: 1000 pixels across
        ((3.0, 3.0), 0, 600),  # never finer than that
        (A4, 300, 300),  # a scan at its own resolution
        (A4, 200, 200),
        (A4, 72, 150),  # small print needs more than a screen's resolution
        (A4, 600, 300),  # and no more than 3508 pixels
        ((120.0, 86.0), 2400, 2104.8),  # a page that was scanned down to a stamp
        ((5000.0, 5000.0), 30, 50.5),  # a poster has enough pixels at less
    ],
)
def test_the_policy(page: tuple[float, float], scan_dpi: float, dpi: float) -> None:
    assert page_dpi(*page, scan_dpi) == pytest.approx(dpi, rel=0.01)


sizes = st.floats(min_value=1e-3, max_value=1e12)


@given(sizes, sizes, st.integers(1, 16_000_000), st.integers(1, 65_535))
def test_whatever_the_page_its_image_fits_the_limits(
    width: float, height: float, most_pixels: int, most_side: int
) -> None:
    columns, rows = fit(width, height, most_pixels, most_side)
    assert columns >= 1
    assert rows >= 1
    assert columns * rows <= most_pixels
    assert max(columns, rows) <= most_side


def test_what_fits_is_left_alone() -> None:
    assert fit(4000, 3000, 16_000_000, 10_000) == (4000, 3000)
