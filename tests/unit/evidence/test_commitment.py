"""Commitments are what a reader makes by hand with standard tools."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from affidavit.libs.evidence.commitment import Commitment, commit, new_salt

SALT = bytes(range(32))


@given(st.lists(st.binary(max_size=50)))
def test_pieces_commit_to_what_the_whole_does(pieces: list[bytes]) -> None:
    commitment = Commitment(SALT)
    for piece in pieces:
        commitment.update(piece)
    assert commitment.digest() == commit(SALT, b"".join(pieces))


@pytest.mark.parametrize(
    "command", ["cat salt.bin result.json | sha256sum", "cat salt.bin result.json | openssl sha256 -r"]
)
def test_a_commitment_can_be_checked_by_hand(tmp_path, command: str) -> None:
    result = '{"pages":["é"]}'.encode()
    (tmp_path / "salt.bin").write_bytes(SALT)
    (tmp_path / "result.json").write_bytes(result)
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == commit(SALT, result).hex()


def test_salts_differ_and_have_32_bytes() -> None:
    assert len({new_salt() for _ in range(100)}) == 100
    assert len(new_salt()) == 32


def test_bytes_cannot_move_between_salt_and_content() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        commit(SALT + b"x", b"y")
