"""Page ranges rise, do not overlap, and lie inside the document."""

import pytest

from affidavit.libs.errors import AffidavitError
from affidavit.preprocess.v1 import preprocess_pb2
from affidavit.services.preprocess.selection import Selection


def ranges(*pairs: tuple[int, int]) -> list[preprocess_pb2.PageRange]:
    return [preprocess_pb2.PageRange(first=first, last=last) for first, last in pairs]


@pytest.mark.parametrize(
    ("wanted", "pages"),
    [
        ((), [1, 2, 3, 4, 5]),
        (((1, 0),), [1, 2, 3, 4, 5]),
        (((2, 2), (4, 5)), [2, 4, 5]),
        (((1, 2), (3, 0)), [1, 2, 3, 4, 5]),
        (((5, 0),), [5]),
    ],
)
def test_ranges_name_pages(wanted: tuple[tuple[int, int], ...], pages: list[int]) -> None:
    selected = Selection(ranges(*wanted)).of(5)
    assert (list(selected), len(selected)) == (pages, len(pages))


@pytest.mark.parametrize(
    "wanted", [((0, 1),), ((3, 2),), ((1, 3), (3, 4)), ((4, 5), (1, 2)), ((2, 0), (4, 5)), ((1, 1),) * 1001]
)
def test_ranges_that_do_not_rise_are_refused(wanted: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(AffidavitError) as caught:
        Selection(ranges(*wanted))
    assert (caught.value.reason, caught.value.field) == ("INVALID_OPTION", "options.pages")


@pytest.mark.parametrize("wanted", [((6, 6),), ((4, 6),), ((6, 0),), ((1, 4294967295),)])
def test_a_page_that_the_document_does_not_have_is_out_of_range(wanted: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(AffidavitError) as caught:
        Selection(ranges(*wanted)).of(5)
    assert caught.value.reason == "PAGE_OUT_OF_RANGE"


def test_a_selection_of_ten_million_pages_needs_no_list() -> None:
    selected = Selection(ranges()).of(10_000_000)
    assert len(selected) == 10_000_000
    assert next(iter(selected)) == 1
