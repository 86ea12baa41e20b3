"""The signed head's file: the newest whole slot counts, whatever a crash left of the other."""

import random
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.merkle import leaf_hash
from affidavit.libs.evidence.note import TreeHead
from affidavit.services.audit.head import SLOT_BYTES, HeadFile, SignedHead

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
VERSION_0 = Path(__file__).parents[2] / "fixtures" / "head-v0.checkpoint"


def signed(size: int) -> SignedHead:
    return SignedHead.sign(TreeHead("affidavit.local/test", size, leaf_hash(b"%d" % size)), KEY)


@pytest.fixture
def file(tmp_path) -> HeadFile:
    file = HeadFile(tmp_path)
    file.replace(signed(0).note)
    return file


def test_the_newest_written_head_is_read_and_the_file_keeps_its_size(file) -> None:
    assert file.read() == signed(0).note
    for size in range(1, 12):
        file.write(signed(size))
        assert file.read() == signed(size).note
        assert HeadFile(file.path.parent).read() == signed(size).note
    assert file.path.stat().st_size == 2 * SLOT_BYTES


def test_a_longer_note_and_then_a_shorter_one_are_read_as_they_are(file) -> None:
    for extensions in [(), ("x" * 9000,), (), ("y",), ("z" * 60_000,), ()]:
        head = SignedHead.sign(TreeHead("affidavit.local/test", 5, bytes(32), extensions), KEY)
        file.write(head)
        assert file.read() == head.note


def test_whatever_a_crash_leaves_of_one_write_the_head_before_it_or_itself_is_read(file) -> None:
    heads = [signed(size) for size in range(1, 8)]
    for head in heads:
        before = file.path.read_bytes()
        file.write(head)
        after = file.path.read_bytes()
        changed = [place for place in range(len(after)) if after[place] != before[place]]
        earlier = HeadFile(file.path.parent)
        for seed in range(20):  # any part of the bytes that differ, as any order of sectors would leave them
            choose = random.Random(seed)
            torn = bytearray(before)
            for place in changed:
                if choose.random() < 0.5:
                    torn[place] = after[place]
            file.path.write_bytes(torn)
            assert earlier.read() == signed(head.tree.size - 1).note
        file.path.write_bytes(after)
        assert earlier.read() == head.note


def test_every_flipped_bit_of_a_slot_makes_the_other_count_and_of_both_is_refused(file) -> None:
    file.write(signed(1))
    whole = file.path.read_bytes()
    newest = whole[SLOT_BYTES:].rstrip(b"\0")
    for place in range(len(newest)):
        torn = bytearray(whole)
        torn[SLOT_BYTES + place] ^= 1
        file.path.write_bytes(torn)
        assert file.read() == signed(0).note
        torn[place % 100] ^= 1
        file.path.write_bytes(torn)
        with pytest.raises(AffidavitError, match="no whole slot"):
            file.read()


def test_a_head_that_was_taken_away_is_not_written_where_no_start_would_find_it(file) -> None:
    file.path.unlink()
    with pytest.raises(FileNotFoundError):
        file.write(signed(1))
    assert file.read() is None


def test_a_file_is_replaced_before_it_is_written_to(file) -> None:
    with pytest.raises(RuntimeError):
        HeadFile(file.path.parent).write(signed(1))


def test_the_older_form_a_note_alone_is_still_read(tmp_path) -> None:
    note = VERSION_0.read_bytes()
    (tmp_path / "checkpoint").write_bytes(note)
    file = HeadFile(tmp_path)
    assert file.read() == note
    assert file.open(note, KEY).tree.size == 7
    file.replace(note)
    file.write(signed(8))
    assert file.read() == signed(8).note
