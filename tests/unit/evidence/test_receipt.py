"""A receipt verifies as it was given, and in no other form."""

from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.commitment import commit
from affidavit.libs.evidence.note import TreeHead, sign_checkpoint
from affidavit.libs.evidence.receipt import VerificationError, read_receipt, verify_receipt, write_receipt
from affidavit.libs.evidence.record import leaf_bytes

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key()
ORIGIN = "affidavit.local/test"
SALT = bytes(range(50, 82))
RESULT, INPUT = b'{"pages":[]}', b"%PDF-1.7 and so on"


def make_receipt(index: int = 5, size: int = 13, **fields) -> evidence_pb2.Receipt:
    made = evidence_pb2.RecordDraft(
        tenant="default",
        request_id="r",
        kind=1,
        phase=1,
        input_commitment=commit(SALT, INPUT),
        output_commitment=commit(SALT, RESULT),
        status="ok",
    )
    made.MergeFrom(evidence_pb2.RecordDraft(**fields))
    leaf = leaf_bytes(made, index, datetime(2026, 11, 30, tzinfo=UTC), SALT)
    nodes, frontier = {}, merkle.Frontier()
    for i in range(size):
        digest = merkle.leaf_hash(leaf if i == index else str(i).encode())
        nodes |= {(level, place): h for level, place, h in frontier.append(digest)}
    path = merkle.prove_inclusion(index, size, lambda level, place: nodes[level, place])
    note = sign_checkpoint(TreeHead(ORIGIN, size, frontier.root()), KEY)
    return evidence_pb2.Receipt(
        leaf=leaf,
        index=index,
        salt=SALT,
        checkpoint=evidence_pb2.Checkpoint(note=note),
        inclusion_proof=evidence_pb2.InclusionProof(leaf_index=index, tree_size=size, hashes=path),
    )


def verify(receipt: evidence_pb2.Receipt, **named):
    return verify_receipt(receipt, PUBLIC, **({"result": RESULT, "input": [INPUT], "origin": ORIGIN} | named))


def failed_check(receipt: evidence_pb2.Receipt, **named) -> str:
    with pytest.raises(VerificationError) as caught:
        verify(receipt, **named)
    return caught.value.check


def test_a_receipt_proves_its_record_result_and_input() -> None:
    verified = verify(make_receipt(), input=[INPUT[:3], b"", INPUT[3:]])
    assert (verified.leaf.index, verified.head.size, verified.head.origin) == (5, 13, ORIGIN)
    assert verified.result_checked
    assert verified.input_checked


def test_what_was_not_given_is_said_to_be_unchecked() -> None:
    verified = verify_receipt(make_receipt(), PUBLIC)
    assert not verified.result_checked
    assert not verified.input_checked


def regions() -> list[tuple[str, int]]:
    receipt = make_receipt()
    places = [("leaf", i) for i in range(len(receipt.leaf))]
    places += [("salt", i) for i in range(len(receipt.salt))]
    places += [("note", i) for i in range(len(receipt.checkpoint.note))]
    return places


def test_no_byte_of_leaf_salt_or_checkpoint_can_be_changed() -> None:
    verify(make_receipt())
    for region, place in regions():
        for bit in range(8):
            receipt = make_receipt_cached()
            holder, name = (receipt.checkpoint, "note") if region == "note" else (receipt, region)
            data = bytearray(getattr(holder, name))
            data[place] ^= 1 << bit
            setattr(holder, name, bytes(data))
            failed_check(receipt)


_CACHED = make_receipt()


def make_receipt_cached() -> evidence_pb2.Receipt:
    receipt = evidence_pb2.Receipt()
    receipt.CopyFrom(_CACHED)
    return receipt


def test_no_byte_of_the_proof_can_be_changed() -> None:
    verify(make_receipt_cached())
    for number in range(len(_CACHED.inclusion_proof.hashes)):
        for place in range(32):
            receipt = make_receipt_cached()
            data = bytearray(receipt.inclusion_proof.hashes[number])
            data[place] ^= 1
            receipt.inclusion_proof.hashes[number] = bytes(data)
            assert failed_check(receipt) == "inclusion"


def test_no_number_can_be_changed() -> None:
    verify(make_receipt_cached())
    for holder, name, check in [
        (lambda r: r, "index", "index"),
        (lambda r: r.inclusion_proof, "leaf_index", "index"),
        (lambda r: r.inclusion_proof, "tree_size", "inclusion"),
    ]:
        for change in (-1, 1, 8):
            receipt = make_receipt_cached()
            setattr(holder(receipt), name, getattr(holder(receipt), name) + change)
            assert failed_check(receipt) == check


def test_moving_a_leaf_with_all_its_numbers_is_found() -> None:
    other = make_receipt(index=6)
    receipt = make_receipt_cached()
    receipt.index = receipt.inclusion_proof.leaf_index = 6
    receipt.leaf = other.leaf
    assert failed_check(receipt) == "inclusion"


def test_proof_hashes_cannot_be_left_out_or_added() -> None:
    receipt = make_receipt_cached()
    receipt.inclusion_proof.hashes.pop()
    assert failed_check(receipt) == "inclusion"
    receipt = make_receipt_cached()
    receipt.inclusion_proof.hashes.append(bytes(32))
    assert failed_check(receipt) == "inclusion"


def test_a_changed_result_or_input_is_named() -> None:
    receipt = make_receipt()
    assert failed_check(receipt, result=RESULT + b" ") == "result"
    assert failed_check(receipt, input=[INPUT, b"more"]) == "input"
    assert failed_check(receipt, input=[]) == "input"


def test_another_key_or_another_log_is_named() -> None:
    receipt = make_receipt()
    with pytest.raises(VerificationError, match="signature"):
        verify_receipt(receipt, Ed25519PrivateKey.generate().public_key())
    assert failed_check(receipt, origin="affidavit.local/other") == "origin"


def test_an_erased_salt_leaves_the_record_provable_and_the_content_not() -> None:
    receipt = make_receipt()
    receipt.salt = b""
    assert verify_receipt(receipt, PUBLIC).leaf.index == 5
    assert failed_check(receipt) == "salt"


def test_a_record_without_an_answer_opens_for_no_result() -> None:
    receipt = make_receipt()
    receipt.leaf = receipt.leaf.replace(commit(SALT, RESULT).hex().encode(), b"x")
    assert failed_check(receipt) == "leaf"
    opened = make_receipt(request_id="opened")
    bare = evidence_pb2.RecordDraft(tenant="t", request_id="r", kind=1, phase=2)
    leaf = leaf_bytes(bare, 0, datetime(2026, 11, 30, tzinfo=UTC), SALT)
    note = sign_checkpoint(TreeHead(ORIGIN, 1, merkle.leaf_hash(leaf)), KEY)
    opened = evidence_pb2.Receipt(
        leaf=leaf, salt=SALT, checkpoint={"note": note}, inclusion_proof={"leaf_index": 0, "tree_size": 1}
    )
    assert verify_receipt(opened, PUBLIC).leaf.output_commitment is None
    assert failed_check(opened) == "result"


def test_the_file_form_is_protobuf_json_and_comes_back_the_same(tmp_path) -> None:
    path = tmp_path / "letter.receipt.json"
    write_receipt(path, make_receipt())
    assert '"inclusionProof"' in path.read_text()
    assert read_receipt(path) == make_receipt()
    verify(read_receipt(path))


def test_no_letter_of_the_file_form_can_be_changed(tmp_path) -> None:
    path = tmp_path / "letter.receipt.json"
    write_receipt(path, _CACHED)
    whole = path.read_bytes()
    for place, byte in enumerate(whole):
        if chr(byte).isspace():
            continue
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(VerificationError):
            verify(read_receipt(path))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"unknown":1}', '{"index":-1}', '{"leaf":"?"}', " " * (2 << 20)])
def test_a_file_that_is_no_receipt_is_refused(tmp_path, text: str) -> None:
    path = tmp_path / "x.receipt.json"
    path.write_text(text)
    with pytest.raises(VerificationError, match="form"):
        read_receipt(path)


def test_an_empty_receipt_proves_nothing() -> None:
    assert failed_check(evidence_pb2.Receipt()) == "leaf"
