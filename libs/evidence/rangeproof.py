"""That a run of leaves, none left out, stands in a tree: the tree's root from every leaf and the outer siblings.

`before` are the siblings on the first leaf's audit path that lie left of it: the complete subtrees over all earlier
leaves. `after` are those on the last leaf's path that lie right of it. Every leaf between is hashed; a leaf that is
dropped, changed, moved or added leads to another root or to another number of siblings.

A log grows by its last leaf's path alone, so leaves may arrive one by one: memory is O(log size).
"""

from collections.abc import Sequence

from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.merkle import Frontier, ProofError


def outer_siblings(
    first: int, last: int, size: int, first_path: Sequence[bytes], last_path: Sequence[bytes]
) -> tuple[list[bytes], list[bytes]]:
    """`before` (largest subtree first) and `after` (from the leaf upwards) of leaves `first` to `last`, both included.

    Args:
        first_path: audit path of leaf `first` in the tree of `size` leaves.
        last_path: of leaf `last`.

    Raises:
        ValueError: a path has another length than its place in the tree.
    """
    before = [h for h, left in zip(first_path, _sides(first, size), strict=True) if left]
    after = [h for h, left in zip(last_path, _sides(last, size), strict=True) if not left]
    return before[::-1], after


class RangeCheck:
    """Takes a run's leaves in order, then checks them against a root."""

    def __init__(self, first: int, before: Sequence[bytes]) -> None:
        """Raises ProofError unless `before` can be the siblings left of leaf `first`."""
        try:
            self._frontier = Frontier(first, before)
        except ValueError as error:
            raise ProofError(str(error)) from None
        self._last: bytes | None = None

    def add(self, leaf: bytes) -> None:
        """The next leaf, by its bytes."""
        if self._last is not None:
            self._frontier.append(self._last)
        self._last = merkle.leaf_hash(leaf)

    def verify(self, size: int, root: bytes, after: Sequence[bytes]) -> None:
        """Raises ProofError unless the leaves that were added are leaves of the tree (size, root), at their places."""
        index = self._frontier.size  # of the last leaf
        if self._last is None:
            raise ProofError("no leaf, nothing is proved")
        if index >= size:
            raise ProofError(f"leaf {index} is not in a tree of {size} leaves")
        sides = _sides(index, size)
        if len(after) != len(sides) - sum(sides):
            raise ProofError(f"leaf {index} of {size} has another number of siblings to its right")
        lefts, rights = iter(reversed(self._frontier.peaks)), iter(after)
        path = [next(lefts if left else rights) for left in sides]
        merkle.verify_inclusion(index, size, self._last, path, root)


def _sides(index: int, size: int) -> list[bool]:
    """For each sibling on a leaf's audit path, from the leaf upwards: whether it lies left of the leaf."""
    sides: list[bool] = []
    begin, end = 0, size
    while end - begin > 1:
        middle = begin + (1 << (end - begin - 1).bit_length() - 1)
        sides.append(index >= middle)
        begin, end = (middle, end) if index >= middle else (begin, middle)
    return sides[::-1]
