"""Lines come out as people read them: columns where there are columns, rows everywhere else."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from affidavit.services.ocr.geometry import turned
from affidavit.services.ocr.readingorder import reading_order

HEIGHT = 20  # of a box; its text is smaller by the margin that detection adds


@dataclass
class Page:
    """Boxes put down in the order in which they should be read."""

    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)

    def line(self, left: float, top: float, width: float, height: float = HEIGHT) -> None:
        self.boxes.append((left, top, left + width, top + height))

    def paragraph(self, left: float, top: float, width: float, lines: int) -> float:
        """Lines of a column, the last one short; returns where the next may begin."""
        for i in range(lines):
            self.line(left, top + 24 * i, width if i + 1 < lines else width * 0.4)
        return top + 24 * lines + 10

    def quads(self) -> np.ndarray:
        corners = [[(x0, y0), (x1, y0), (x1, y1), (x0, y1)] for x0, y0, x1, y1 in self.boxes]
        return np.array(corners, np.float32)


def order_of(quads: np.ndarray, seed: int = 7) -> list[int]:
    """The order found for boxes that come in another one."""
    shuffled = np.random.default_rng(seed).permutation(len(quads))
    return [int(shuffled[i]) for row in reading_order(quads[shuffled]) for i in row]


def in_order(page: Page) -> list[int]:
    return list(range(len(page.boxes)))


def two_columns_under_a_heading() -> Page:
    page = Page()
    page.line(150, 40, 500, 40)
    page.paragraph(60, 120, 320, 12)
    page.paragraph(420, 120, 320, 14)
    return page


def heading_across_columns() -> Page:
    """Columns above and below a heading are read above it, then below it."""
    page = Page()
    for top in (60, 460):
        page.paragraph(60, top, 320, 12)
        page.paragraph(420, top, 320, 12)
        if top == 60:
            page.line(60, 400, 680, 32)
    return page


def three_columns() -> Page:
    page = Page()
    for left in (40, 310, 580):
        page.paragraph(left, 60, 240, 15)
    return page


def quote_between_columns() -> Page:
    """A pull quote that stands between two columns ends neither: left, quote, right."""
    page = Page()
    for i in range(18):
        page.line(60, 60 + 24 * i, 320 if not 6 <= i < 10 else 240)
    for i in range(4):
        page.line(325, 60 + 24 * (6 + i), 150)
    for i in range(18):
        narrow = 6 <= i < 10
        page.line(500 if narrow else 420, 60 + 24 * i, 240 if narrow else 320)
    return page


def paragraph_then_columns() -> Page:
    page = Page()
    top = page.paragraph(60, 40, 680, 6)
    page.paragraph(60, top + 20, 320, 8)
    page.paragraph(420, top + 20, 320, 8)
    return page


def table() -> Page:
    page = Page()
    for row in range(12):
        for left, width in ((60, 130), (260, 60), (420, 70), (600, 50)):
            page.line(left, 60 + 30 * row, width)
    return page


def receipt() -> Page:
    page = Page()
    page.line(120, 20, 200)
    for row in range(10):
        page.line(20, 80 + 28 * row, 90 + 13 * (row % 5))
        page.line(380, 82 + 28 * row, 50)
    page.line(20, 380, 60)
    page.line(370, 380, 60)
    return page


def form() -> Page:
    page = Page()
    for row, width in enumerate((200, 40, 310, 90, 120, 260)):
        page.line(60, 60 + 40 * row, 80)
        page.line(200, 58 + 40 * row, width)
    return page


def street_sign() -> Page:
    """Big and small letters in three stacks: rows, not columns."""
    page = Page()
    page.line(60, 60, 40, 40)
    page.line(150, 50, 220, 60)
    page.line(430, 60, 40, 40)
    page.line(50, 110, 60, 34)
    page.line(430, 112, 60, 34)
    page.line(55, 160, 45, 40)
    page.line(190, 160, 160, 40)
    page.line(435, 160, 30, 40)
    return page


LAYOUTS = [
    two_columns_under_a_heading,
    heading_across_columns,
    three_columns,
    quote_between_columns,
    paragraph_then_columns,
    table,
    receipt,
    form,
    street_sign,
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_a_layout_is_read_as_people_do(layout) -> None:
    page = layout()
    assert order_of(page.quads()) == in_order(page)


@pytest.mark.parametrize("layout", [two_columns_under_a_heading, heading_across_columns, table])
@pytest.mark.parametrize("degrees", [-4, 3, 90, 180, 267])
def test_the_order_does_not_depend_on_how_the_page_lies(layout, degrees) -> None:
    page = layout()
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]], np.float32)
    assert order_of(page.quads() @ turn) == in_order(page)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_the_order_does_not_depend_on_the_order_of_detection(layout) -> None:
    quads = layout().quads()
    assert len({tuple(order_of(quads, seed)) for seed in range(5)}) == 1


def test_a_box_that_reaches_into_the_gutter_ends_no_column() -> None:
    page = two_columns_under_a_heading()
    x0, y0, x1, y1 = page.boxes[5]
    page.boxes[5] = (x0, y0, x1 + 45, y1)
    assert order_of(page.quads()) == in_order(page)


def test_boxes_of_one_row_are_one_row() -> None:
    page = Page()
    page.line(60, 60, 100)
    page.line(180, 63, 100)
    page.line(60, 100, 300)
    assert reading_order(page.quads()) == [[0, 1], [2]]


def test_no_boxes_have_no_order() -> None:
    assert reading_order(np.zeros((0, 4, 2), np.float32)) == []


def test_a_turned_quad_begins_at_the_texts_own_corner() -> None:
    # The page lies on its left side: the text's top-left corner is the page's bottom-left one.
    page = np.array([[0, 0], [20, 0], [20, 100], [0, 100]], np.float32)
    assert turned(page, 90).tolist() == [[0, 100], [0, 0], [20, 0], [20, 100]]
    assert turned(page, 180)[0].tolist() == [20, 100]
    assert turned(page, 270)[0].tolist() == [20, 0]
