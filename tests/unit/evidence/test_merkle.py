"""The Merkle tree is RFC 6962's: it judges other people's proofs right, and its own proofs check and nothing else."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.merkle import Frontier, ProofError

TLOG = Path(__file__).parents[3].parent / "shared" / "data" / "tlog"
CASES = [json.loads(line) for line in (TLOG / "merkle_proofs.jsonl").read_text().splitlines()]


def judge(case: dict) -> None:
    def b(name: str) -> bytes:
        return base64.b64decode(case[name] or "")

    proof = [base64.b64decode(h) for h in case["proof"] or []]
    match case["kind"]:
        case "inclusion":
            merkle.verify_inclusion(case["leafIdx"], case["treeSize"], b("leafHash"), proof, b("root"))
        case "consistency":
            merkle.verify_consistency(case["size1"], case["size2"], b("root1"), b("root2"), proof)
        case "subtreeinclusion":
            begin = case["start"]
            merkle.verify_inclusion(case["leafIdx"] - begin, case["end"] - begin, b("leafHash"), proof, b("root"))
        case "subtreeconsistency":
            begin, end, size = case["start"], case["end"], case["size"]
            merkle.verify_subtree_consistency(begin, end, size, b("root1"), b("root2"), proof)
        case other:
            pytest.fail(f"unknown kind {other}")


def test_all_518_proofs_that_others_wrote_are_there() -> None:
    assert len(CASES) == 518


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_proofs_that_others_wrote_are_judged_right(case: dict) -> None:
    if case["wantErr"]:
        with pytest.raises(ProofError):
            judge(case)
    else:
        judge(case)


def naive_root(hashes: list[bytes]) -> bytes:
    """RFC 6962 2.1, word for word."""
    if not hashes:
        return merkle.EMPTY_ROOT
    if len(hashes) == 1:
        return hashes[0]
    k = 1
    while k * 2 < len(hashes):
        k *= 2
    return merkle.node_hash(naive_root(hashes[:k]), naive_root(hashes[k:]))


class Tree:
    """A grown tree with its complete subtrees."""

    def __init__(self, size: int) -> None:
        self.hashes = [merkle.leaf_hash(str(i).encode()) for i in range(size)]
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.frontier = Frontier()
        self.roots = [self.frontier.root()]
        for digest in self.hashes:
            for level, index, node in self.frontier.append(digest):
                self.nodes[level, index] = node
            self.roots.append(self.frontier.root())

    def node(self, level: int, index: int) -> bytes:
        return self.nodes[level, index]


TREE = Tree(130)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 64, 100, 130])
def test_roots_are_those_of_the_recursive_definition(size: int) -> None:
    assert TREE.roots[size] == naive_root(TREE.hashes[:size]) == merkle.root(size, TREE.node)
    assert Frontier.read(size, TREE.node).peaks == Tree(size).frontier.peaks


def test_every_inclusion_proof_of_every_size_verifies() -> None:
    for size in range(1, 70):
        for index in range(size):
            proof = merkle.prove_inclusion(index, size, TREE.node)
            merkle.verify_inclusion(index, size, TREE.hashes[index], proof, TREE.roots[size])


def test_every_consistency_proof_verifies() -> None:
    for second in range(1, 70):
        for first in range(1, second + 1):
            proof = merkle.prove_consistency(first, second, TREE.node)
            merkle.verify_consistency(first, second, TREE.roots[first], TREE.roots[second], proof)


@given(st.data())
def test_a_changed_proof_never_verifies(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 130))
    index = data.draw(st.integers(0, size - 1))
    proof = merkle.prove_inclusion(index, size, TREE.node)
    merkle.verify_inclusion(index, size, TREE.hashes[index], proof, TREE.roots[size])
    place = data.draw(st.integers(0, len(proof) - 1))
    flipped = bytearray(proof[place])
    flipped[data.draw(st.integers(0, 31))] ^= 1 << data.draw(st.integers(0, 7))
    other = data.draw(st.integers(0, size - 1).filter(lambda i: i != index))
    for changed_index, changed in [
        (index, [*proof[:place], bytes(flipped), *proof[place + 1 :]]),
        (index, proof[:-1]),
        (index, [*proof, proof[0]]),
        (other, proof),
    ]:
        with pytest.raises(ProofError):
            merkle.verify_inclusion(changed_index, size, TREE.hashes[index], changed, TREE.roots[size])


def test_a_fork_has_no_consistency_proof() -> None:
    fork = Tree(100)
    fork.hashes[40] = merkle.leaf_hash(b"another past")
    root = naive_root(fork.hashes)
    proof = merkle.prove_consistency(64, 100, TREE.node)
    merkle.verify_consistency(64, 100, TREE.roots[64], TREE.roots[100], proof)
    with pytest.raises(ProofError):
        merkle.verify_consistency(64, 100, TREE.roots[64], root, proof)


def test_a_frontier_with_a_missing_peak_is_refused() -> None:
    with pytest.raises(ValueError, match="peaks"):
        Frontier(3, [bytes(32)])
