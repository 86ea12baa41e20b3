"""Which pages a caller wants."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from affidavit.libs.errors import AffidavitError
from affidavit.preprocess.v1 import preprocess_pb2

MAX_RANGES = 1000


class _Range(NamedTuple):
    first: int
    last: int  # 0: the document's last page


class Selection:
    """Rising, disjoint ranges of 1-based page numbers; all pages when there are none."""

    def __init__(self, ranges: Iterable[preprocess_pb2.PageRange]) -> None:
        """
        Raises:
            AffidavitError: INVALID_OPTION when the ranges are not as they must be.
        """
        self._ranges = [_Range(r.first, r.last) for r in ranges] or [_Range(1, 0)]
        if len(self._ranges) > MAX_RANGES:
            raise _invalid(f"more than {MAX_RANGES} page ranges")
        before = 0
        for number, (first, last) in enumerate(self._ranges):
            if first < 1:
                raise _invalid("a page range starts at page 1 or later")
            if first <= before:
                raise _invalid(f"page ranges must rise and not overlap: {first} comes after {before}")
            if last == 0 and number < len(self._ranges) - 1:
                raise _invalid("only the last page range may be open")
            if last and last < first:
                raise _invalid(f"page range {first}-{last} runs backwards")
            before = last

    def of(self, page_count: int) -> "SelectedPages":
        """The selected pages of a document.

        Raises:
            AffidavitError: PAGE_OUT_OF_RANGE when one lies outside.
        """
        whole = [_Range(first, last or page_count) for first, last in self._ranges]
        greatest = max(whole[-1])
        if greatest > page_count:
            message = f"page {greatest} is wanted and the document has {page_count}"
            raise AffidavitError("PAGE_OUT_OF_RANGE", message, field="options.pages")
        return SelectedPages(whole)


class SelectedPages:
    """Page numbers in rising order, without a list of them."""

    def __init__(self, ranges: list[_Range]) -> None:
        self._ranges = ranges

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self._ranges:
            yield from range(first, last + 1)


def _invalid(message: str) -> AffidavitError:
    return AffidavitError("INVALID_OPTION", message, field="options.pages")
