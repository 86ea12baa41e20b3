"""The RFC 6962 Merkle tree: hashes, growth, inclusion and consistency proofs, made and checked.

A complete subtree of 2^level leaves, the `index`-th of its level, never changes once it is full: a log stores these and
nothing else, and any root or proof of any earlier size is made of O(log n) of them (`NodeReader`). The ragged right
edge of a tree is hashed again from them when it is needed.

Checking follows RFC 9162 section 2.1.3.2 (inclusion) and the subtree form of section 2.1.4.2 (consistency) from
draft-ietf-plants-merkle-tree-certs section 4.4.3, of which the plain form is the case start = 0.
"""

import hashlib
from collections.abc import Callable, Sequence

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()

# hash of the complete subtree (level, index): leaves index * 2^level to (index + 1) * 2^level - 1
NodeReader = Callable[[int, int], bytes]


class ProofError(ValueError):
    """A proof does not lead where it should."""


def leaf_hash(leaf: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


class Frontier:
    """A tree as its appender sees it: the complete subtrees that cover its leaves, largest first."""

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        """Raises ValueError unless there is one peak for each bit that is set in `size`."""
        if len(peaks) != size.bit_count():
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} peaks, not {len(peaks)}")
        self.size = size
        self.peaks = list(peaks)

    @classmethod
    def read(cls, size: int, node: NodeReader) -> "Frontier":
        """The frontier of a stored tree, in O(log size) reads."""
        return cls(size, [node(level, index) for level, index in peak_places(size)])

    def append(self, leaf: bytes) -> list[tuple[int, int, bytes]]:
        """Add a leaf by its hash; the subtrees that became complete, as (level, index, hash), the leaf itself first."""
        complete = [(0, self.size, leaf)]
        digest, index, level = leaf, self.size, 0
        while index & 1:
            digest = node_hash(self.peaks.pop(), digest)
            index >>= 1
            level += 1
            complete.append((level, index, digest))
        self.peaks.append(digest)
        self.size += 1
        return complete

    def root(self) -> bytes:
        return _fold(self.peaks) if self.peaks else EMPTY_ROOT


def peak_places(size: int) -> list[tuple[int, int]]:
    """(level, index) of the complete subtrees that cover `size` leaves, largest first."""
    return [(level, (size >> level) - 1) for level in reversed(range(size.bit_length())) if size >> level & 1]


def root(size: int, node: NodeReader) -> bytes:
    """The root of the first `size` leaves."""
    return _subtree(0, size, node) if size else EMPTY_ROOT


def prove_inclusion(index: int, size: int, node: NodeReader) -> list[bytes]:
    """The audit path of leaf `index` in the tree of `size` leaves (RFC 9162 2.1.3.1), siblings from the leaf upwards.

    Raises:
        ValueError: `index` is not below `size`.
    """
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size} leaves")
    path: list[bytes] = []
    begin, end = 0, size
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            path.append(_subtree(middle, end, node))
            end = middle
        else:
            path.append(_subtree(begin, middle, node))
            begin = middle
    return path[::-1]


def prove_consistency(first: int, second: int, node: NodeReader) -> list[bytes]:
    """The proof that the tree of `second` leaves continues the one of `first` leaves (RFC 9162 2.1.4.1).

    Raises:
        ValueError: not 0 < first <= second.
    """
    if not 0 < first <= second:
        raise ValueError(f"no consistency proof from {first} to {second} leaves")
    path: list[bytes] = []
    begin, end = 0, second
    while first != end:
        middle = begin + _split(end - begin)
        if first <= middle:
            path.append(_subtree(middle, end, node))
            end = middle
        else:
            path.append(_subtree(begin, middle, node))
            begin = middle
    if begin:  # the old tree is not a subtree of its own: its right edge starts the proof
        path.append(_subtree(begin, end, node))
    return path[::-1]


def verify_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes], root_hash: bytes) -> None:
    """Check an audit path.

    Args:
        leaf: the leaf's hash (`leaf_hash`), 32 bytes.

    Raises:
        ProofError: the path does not lead from the leaf to `root_hash`, or has another length.
    """
    if not 0 <= index < size:
        raise ProofError(f"leaf {index} is not in a tree of {size} leaves")
    _require_hashes(leaf, root_hash, *proof)
    number, last, digest = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            raise ProofError("the path is longer than the tree is high")
        if number & 1 or number == last:
            digest = node_hash(sibling, digest)
            while not number & 1 and number:
                number >>= 1
                last >>= 1
        else:
            digest = node_hash(digest, sibling)
        number >>= 1
        last >>= 1
    if last:
        raise ProofError("the path is shorter than the tree is high")
    if digest != root_hash:
        raise ProofError("the path leads to another root")


def verify_consistency(first: int, second: int, root1: bytes, root2: bytes, proof: Sequence[bytes]) -> None:
    """Check that the tree (second, root2) continues the tree (first, root1).

    Raises:
        ProofError: it does not, or nothing is proved (an empty first tree fits every other).
    """
    if first == 0 and second != 0:
        raise ProofError("every tree continues the empty one: nothing is proved")
    verify_subtree_consistency(0, first, second, root1, root2, proof)
    if first == second and root1 != root2:
        raise ProofError("two roots of one size differ")


def verify_subtree_consistency(
    begin: int, end: int, size: int, subtree_root: bytes, root_hash: bytes, proof: Sequence[bytes]
) -> None:
    """Check that leaves `begin` to `end` (exclusive) of the tree (size, root_hash) have the root `subtree_root`.

    Raises:
        ProofError: they do not, or `begin` and `end` bound no subtree.
    """
    if not 0 <= begin <= end <= size or begin % _ceiling(end - begin):
        raise ProofError(f"leaves {begin} to {end} are no subtree of a tree of {size} leaves")
    if begin == end:
        if subtree_root != EMPTY_ROOT or proof:
            raise ProofError("an empty subtree has the empty root and an empty proof")
        return
    _require_hashes(*proof)
    first, last, tree_last = begin, end - 1, size - 1
    whole = last == tree_last
    while first != last and (whole or last & 1):
        first, last, tree_last = first >> 1, last >> 1, tree_last >> 1
    rest = list(proof)
    if first == last:
        old = new = subtree_root
    elif rest:
        old = new = rest.pop(0)
    else:
        raise ProofError("the proof is empty")
    for sibling in rest:
        if tree_last == 0:
            raise ProofError("the proof is longer than the tree is high")
        if last & 1 or last == tree_last:
            if first < last:
                old = node_hash(sibling, old)
            new = node_hash(sibling, new)
            while not last & 1 and last:
                first, last, tree_last = first >> 1, last >> 1, tree_last >> 1
        else:
            new = node_hash(new, sibling)
        first, last, tree_last = first >> 1, last >> 1, tree_last >> 1
    if tree_last:
        raise ProofError("the proof is shorter than the tree is high")
    if old != subtree_root:
        raise ProofError("the proof starts from another subtree")
    if new != root_hash:
        raise ProofError("the proof leads to another root")


def _require_hashes(*hashes: bytes) -> None:
    # An empty "hash" equal to an empty root would prove a leaf that does not exist.
    if any(len(digest) != HASH_BYTES for digest in hashes):
        raise ProofError(f"a hash has {HASH_BYTES} bytes")


def _subtree(begin: int, end: int, node: NodeReader) -> bytes:
    """The hash of leaves `begin` to `end`, where `begin` is a multiple of the largest power of two in the range."""
    count = end - begin
    if not count & (count - 1):  # complete: all but the ragged right edge are
        level = count.bit_length() - 1
        return node(level, begin >> level)
    return _fold([node(level, (begin >> level) + index) for level, index in peak_places(count)])


def _fold(peaks: Sequence[bytes]) -> bytes:
    digest = peaks[-1]
    for peak in reversed(peaks[:-1]):
        digest = node_hash(peak, digest)
    return digest


def _split(count: int) -> int:
    """The largest power of two below `count`."""
    return 1 << (count - 1).bit_length() - 1


def _ceiling(count: int) -> int:
    """The smallest power of two that is not below `count`."""
    return 1 << (count - 1).bit_length() if count > 1 else 1
