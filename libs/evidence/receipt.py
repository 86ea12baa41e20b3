"""Receipts: what a caller keeps, and how it is verified offline with nothing but the log's public key.

verified = verify_receipt(read_receipt(path), key, result=Path("out.json").read_bytes())
verified.leaf.time, verified.head.size
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf import json_format

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.commitment import SALT_BYTES, Commitment
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.note import NoteError, TreeHead
from affidavit.libs.evidence.record import Leaf, parse_leaf

MAX_RECEIPT_BYTES = 1 << 20


class VerificationError(Exception):
    """A receipt does not prove what it should.

    Args:
        check: which check failed: form, spooled, leaf, index, salt, origin, signature, inclusion, result or input.
    """

    def __init__(self, check: str, message: str) -> None:
        super().__init__(f"{check}: {message}")
        self.check = check


@dataclass(frozen=True)
class VerifiedReceipt:
    """What was proved: this leaf is in the log of `head.origin` at its index, as of `head`."""

    leaf: Leaf
    head: TreeHead
    result_checked: bool
    input_checked: bool


def verify_receipt(
    receipt: evidence_pb2.Receipt,
    log_keys: LogKeys | Ed25519PublicKey,
    *,
    result: bytes | None = None,
    input: Iterable[bytes] | None = None,
    origin: str | None = None,
) -> VerifiedReceipt:
    """Check everything that a receipt claims.

    Args:
        log_keys: trusted from elsewhere, never from the receipt's sender; those that were rotated away count up to then.
        result: the answer's exact bytes; None leaves the result unchecked.
        input: the input's bytes in pieces; None leaves the input unchecked.
        origin: the log's name, where it is known; None accepts the one that the key signed.

    Raises:
        VerificationError: a check failed; `check` says which.
    """
    if receipt.HasField("spooled"):
        message = "the log was down and the record waits in a spool; its receipt is had later, by request id and step"
        raise VerificationError("spooled", message)
    leaf = _check_leaf(receipt)
    head = _check_checkpoint(receipt.checkpoint.note, LogKeys.of(log_keys), origin)
    _check_inclusion(receipt, head)
    _check_salt(receipt.salt, opening=result is not None or input is not None)
    if result is not None:
        _check_commitment("result", receipt.salt, [result], leaf.output_commitment)
    if input is not None:
        _check_commitment("input", receipt.salt, input, leaf.input_commitment)
    return VerifiedReceipt(leaf, head, result is not None, input is not None)


def write_receipt(path: Path, receipt: evidence_pb2.Receipt) -> None:
    """Write the file form of a receipt: protobuf JSON, by convention named `*.receipt.json`."""
    path.write_text(json_format.MessageToJson(receipt, indent=2) + "\n", "utf-8")


def read_receipt(path: Path) -> evidence_pb2.Receipt:
    """Read a receipt's file form.

    Raises:
        OSError: the file cannot be read.
        VerificationError: (form) it is not a receipt.
    """
    with path.open("rb") as file:
        data = file.read(MAX_RECEIPT_BYTES + 1)
    if len(data) > MAX_RECEIPT_BYTES:
        raise VerificationError("form", f"{path} is larger than any receipt")
    try:
        value = json.loads(data)
        receipt = json_format.ParseDict(value, evidence_pb2.Receipt())
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise VerificationError("form", f"{path} is no receipt: {error}") from None
    # The parser lets base64 be sloppy and names repeat; a changed file should not read as the receipt that it was.
    if not any(
        value == json_format.MessageToDict(receipt, always_print_fields_with_no_presence=d) for d in (False, True)
    ):
        raise VerificationError("form", f"{path} is no receipt: not the protobuf JSON form of what it says")
    return receipt


def _check_leaf(receipt: evidence_pb2.Receipt) -> Leaf:
    try:
        leaf = parse_leaf(receipt.leaf)
    except ValueError as error:
        raise VerificationError("leaf", f"not a record of version 1: {error}") from None
    if not leaf.index == receipt.index == receipt.inclusion_proof.leaf_index:
        named = f"leaf {leaf.index}, receipt {receipt.index}, proof {receipt.inclusion_proof.leaf_index}"
        raise VerificationError("index", f"leaf, receipt and proof name different places: {named}")
    return leaf


def _check_checkpoint(note: bytes, keys: LogKeys, origin: str | None) -> TreeHead:
    try:
        said = TreeHead.unverified(note).origin
        if origin is not None and said != origin:
            raise VerificationError("origin", f"the checkpoint is of log {said!r}, not {origin!r}")
        return keys.open(note)
    except NoteError as error:
        raise VerificationError("signature", f"the checkpoint is not signed by the log's key: {error}") from None


def _check_inclusion(receipt: evidence_pb2.Receipt, head: TreeHead) -> None:
    proof = receipt.inclusion_proof
    if proof.tree_size != head.size:
        message = f"the proof is for a tree of {proof.tree_size} leaves, the checkpoint has {head.size}"
        raise VerificationError("inclusion", message)
    try:
        merkle.verify_inclusion(proof.leaf_index, head.size, merkle.leaf_hash(receipt.leaf), proof.hashes, head.root)
    except merkle.ProofError as error:
        raise VerificationError("inclusion", f"the leaf is not in the checkpoint's tree: {error}") from None


def _check_salt(salt: bytes, *, opening: bool) -> None:
    if opening and not salt:
        raise VerificationError("salt", "the salt was erased: nobody can open this record's commitments any more")
    if len(salt) not in (0, SALT_BYTES):
        raise VerificationError("salt", f"a salt has {SALT_BYTES} bytes, this one {len(salt)}")


def _check_commitment(what: str, salt: bytes, pieces: Iterable[bytes], expected: bytes | None) -> None:
    if expected is None:
        raise VerificationError(what, f"the record commits to no {what}")
    commitment = Commitment(salt)
    for piece in pieces:
        commitment.update(piece)
    if commitment.digest() != expected:
        raise VerificationError(what, f"these are not the bytes of the {what} that the record commits to")
