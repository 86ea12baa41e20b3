"""Signed notes and checkpoints: other people's verify here, ours in one form only."""

import base64
import struct
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.keys import public_pem
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.note import (
    NoteError,
    TreeHead,
    Verifier,
    open_checkpoint,
    open_note,
    sign_checkpoint,
    sign_note,
    split_note,
)

TESSERA = Path(__file__).parents[3].parent / "shared" / "data" / "tlog" / "log"
TESSERA_KEY = "example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
HEAD = TreeHead("affidavit.local/test", 15, bytes(range(32)))


def tessera_entries() -> list[bytes]:
    bundle = (TESSERA / "tile/entries/000.p/15").read_bytes()
    entries = []
    while bundle:
        (length,) = struct.unpack(">H", bundle[:2])
        entries.append(bundle[2 : 2 + length])
        bundle = bundle[2 + length :]
    return entries


def tessera_heads() -> list[TreeHead]:
    verifier = Verifier.parse(TESSERA_KEY)
    return [open_checkpoint((TESSERA / f"checkpoint.{n}").read_bytes(), [verifier]) for n in range(16)]


def test_every_checkpoint_of_a_tessera_log_verifies_and_its_root_follows_from_the_entries() -> None:
    frontier = Frontier()
    heads = tessera_heads()
    assert heads[0].root == frontier.root()
    for entry, head in zip(tessera_entries(), heads[1:], strict=True):
        frontier.append(merkle.leaf_hash(entry))
        assert (head.size, head.root) == (frontier.size, frontier.root())


def test_every_two_sizes_of_a_tessera_log_are_consistent() -> None:
    nodes = {}
    frontier = Frontier()
    for entry in tessera_entries():
        nodes |= {(level, i): h for level, i, h in frontier.append(merkle.leaf_hash(entry))}
    heads = tessera_heads()
    for second in range(1, 16):
        for first in range(1, second + 1):
            proof = merkle.prove_consistency(first, second, lambda level, i: nodes[level, i])
            merkle.verify_consistency(first, second, heads[first].root, heads[second].root, proof)


def test_a_verifier_key_reads_and_writes_as_others_do() -> None:
    assert Verifier.parse(TESSERA_KEY).text() == TESSERA_KEY


@pytest.mark.parametrize(
    "text", ["", "name", "name+33d7b496", TESSERA_KEY.replace("33d7b496", "33d7b497"), "a b+00000000+AQ==", "a+b+!"]
)
def test_a_verifier_key_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        Verifier.parse(text)


def test_openssl_alone_verifies_our_signature(tmp_path) -> None:
    note = sign_checkpoint(HEAD, KEY)
    text, _, block = note.decode().rpartition("\n\n")
    (tmp_path / "text").write_bytes(text.encode() + b"\n")
    (tmp_path / "signature").write_bytes(base64.b64decode(block.split()[-1])[4:])
    (tmp_path / "log.pub").write_bytes(public_pem(KEY.public_key()))
    command = "openssl pkeyutl -verify -pubin -inkey log.pub -rawin -in text -sigfile signature"
    done = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Verified Successfully" in done.stdout


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1),
    st.integers(0, 2**64 - 1),
    st.binary(min_size=32, max_size=32),
)
def test_what_is_signed_opens_and_says_the_same(extension: str, size: int, root: bytes) -> None:
    head = TreeHead("affidavit.local/test", size, root, (extension,))
    assert open_checkpoint(sign_checkpoint(head, KEY), [Verifier(head.origin, KEY.public_key())]) == head


def test_a_flip_of_any_bit_of_a_checkpoint_is_refused() -> None:
    note = sign_checkpoint(HEAD, KEY)
    verifier = Verifier(HEAD.origin, KEY.public_key())
    assert open_checkpoint(note, [verifier]) == HEAD
    for place in range(len(note)):
        for bit in range(8):
            flipped = bytearray(note)
            flipped[place] ^= 1 << bit
            with pytest.raises(NoteError):
                open_checkpoint(bytes(flipped), [verifier])


def test_signatures_of_unknown_keys_are_passed_over_but_one_known_must_be_there() -> None:
    stranger = Ed25519PrivateKey.generate()
    ours = sign_checkpoint(HEAD, KEY)
    theirs = sign_note(HEAD.text(), "witness.example", stranger)
    both = ours + theirs.rpartition(b"\n\n")[2]
    assert open_note(both, [Verifier(HEAD.origin, KEY.public_key())]) == HEAD.text()
    assert open_note(both, [Verifier("witness.example", stranger.public_key())]) == HEAD.text()
    with pytest.raises(NoteError, match="no known key"):
        open_note(theirs, [Verifier(HEAD.origin, KEY.public_key())])
    with pytest.raises(NoteError, match="no known key"):
        open_note(both, [Verifier("other.example", KEY.public_key())])


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"text\n",
        b"text\n\n",
        b"text\n\nno dash\n",
        "text\n\n— name\n".encode(),
        "text\n\n— name AAAA\n".encode(),
        "text\n\n— na+me AAAAAAA=\n".encode(),
        "text\n\n— name AAAAAAA=".encode(),
        "te\x01xt\n\n— name AAAAAAA=\n".encode(),
        "\xff\n\n— name AAAAAAA=\n".encode("latin-1", "replace"),
        b"x" * 70_000,
    ],
)
def test_bytes_that_are_no_note_are_refused(note: bytes) -> None:
    with pytest.raises(NoteError):
        split_note(note)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "origin\n",
        "origin\n1\n",
        f"origin\n01\n{base64.b64encode(bytes(32)).decode()}\n",
        f"origin\n-1\n{base64.b64encode(bytes(32)).decode()}\n",
        f"origin\n1\n{base64.b64encode(bytes(31)).decode()}\n",
        f"\n1\n{base64.b64encode(bytes(32)).decode()}\n",
        "origin\n1\nnot base64\n",
    ],
)
def test_texts_that_are_no_checkpoint_are_refused(text: str) -> None:
    with pytest.raises(NoteError):
        TreeHead.parse(text)
