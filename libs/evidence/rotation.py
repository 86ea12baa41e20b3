"""A key rotation as evidence: how whoever trusts one key of a log comes to trust the others.

The record of a rotation (kind `environment`, its `body` below) names the old key and the new one. It is the last record of
the checkpoint that both keys signed, the handover: the old key says with it whom it hands over to, the new one whom it
follows. So trust goes forward and backward along the handovers, and no further than they prove.

    {"event":"log_key_rotation","new":{"pem":…,"sha256":…,"verifier":…},"old":{…}}

`verifier` is the C2SP verifier key `name+id+base64`, `pem` the SubjectPublicKeyInfo, `sha256` the hash of those PEM bytes.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from affidavit.libs import canonicaljson
from affidavit.libs.canonicaljson import Json
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.keys import public_pem
from affidavit.libs.evidence.logkeys import LogKeys, RetiredKey
from affidavit.libs.evidence.members import Members
from affidavit.libs.evidence.note import NoteError, Verifier, open_checkpoint
from affidavit.libs.evidence.record import Leaf, parse_leaf

FORMAT = "affidavit-log-keys@v1"
TENANT = "default"
REQUEST_ID = "log-key-rotation"  # of every rotation's record
_EVENT = "log_key_rotation"
_KEY_MEMBERS = frozenset({"pem", "sha256", "verifier"})


class RotationError(ValueError):
    """What is said to be a rotation does not hand a key over."""


@dataclass(frozen=True)
class Rotation:
    """What the record says."""

    old: Verifier
    new: Verifier

    def body(self) -> bytes:
        """The record's body, RFC 8785 JSON."""
        return canonicaljson.dumps({"event": _EVENT, "new": _key_json(self.new), "old": _key_json(self.old)})

    @classmethod
    def of(cls, leaf: Leaf) -> "Rotation":
        """Raises RotationError unless `leaf` is a rotation's record."""
        try:
            said = Members(dict(leaf.body or {}), frozenset({"event", "new", "old"}), frozenset())
            if leaf.kind != "environment" or said.text("event") != _EVENT:
                raise ValueError(f"a record of kind {leaf.kind}")
            rotation = cls(_key_of(said.value("old")), _key_of(said.value("new")))
        except ValueError as error:  # NoteError among them
            raise RotationError(f"record {leaf.index} is no key rotation: {error}") from None
        if rotation.old.name != rotation.new.name or rotation.old.key == rotation.new.key:
            raise RotationError(f"record {leaf.index} does not name two keys of one log")
        return rotation


@dataclass(frozen=True)
class Handover:
    """A rotation's record, its audit path, and the checkpoint that both keys signed over it and all before it."""

    leaf: bytes
    path: tuple[bytes, ...]
    checkpoint: bytes

    def verify(self) -> tuple[int, Rotation]:
        """The record's index, and what it says.

        Raises:
            RotationError: not a rotation, not the checkpoint's last record, or not signed by both keys.
        """
        try:
            leaf = parse_leaf(self.leaf)
            rotation = Rotation.of(leaf)
            heads = [open_checkpoint(self.checkpoint, [key]) for key in (rotation.old, rotation.new)]
            size, root = heads[0].size, heads[0].root
            if heads[0].origin != rotation.old.name or size != leaf.index + 1:
                raise ValueError(f"it is not the last record of the checkpoint of {heads[0].origin}, {size} records")
            merkle.verify_inclusion(leaf.index, size, merkle.leaf_hash(self.leaf), self.path, root)
        except RotationError:
            raise
        except ValueError as error:
            raise RotationError(f"the handover does not hold: {error}") from None
        return leaf.index, rotation


def follow(trusted: Ed25519PublicKey, handovers: Iterable[Handover]) -> LogKeys:
    """The keys that a log has and had, given one of them and the log's handovers, in any order.

    Raises:
        RotationError: a handover does not hold, they are no chain, or `trusted` is not one of their keys.
    """
    found = sorted((handover.verify() for handover in handovers), key=lambda pair: pair[0])
    for (_, before), (index, after) in pairwise(found):
        if after.old != before.new:
            raise RotationError(f"record {index} does not hand over the key that the rotation before it named")
    if not found:
        return LogKeys(trusted)
    retired = tuple(RetiredKey(rotation.old.key, index + 1) for index, rotation in found)
    keys = LogKeys(found[-1][1].new.key, retired)
    if trusted not in keys.all():
        raise RotationError("the trusted key is none of those that the rotations name")
    return keys


def chain_text(handovers: Sequence[Handover]) -> bytes:
    """A log's handovers in one file: one line of RFC 8785 JSON."""
    rotations: list[Json] = [
        {"checkpoint": h.checkpoint.decode(), "leaf": h.leaf.decode(), "path": [p.hex() for p in h.path]}
        for h in handovers
    ]
    return canonicaljson.dumps({"format": FORMAT, "rotations": rotations}) + b"\n"


def parse_chain(data: bytes) -> list[Handover]:
    """What `chain_text` wrote; nothing is verified yet. Raises RotationError."""
    try:
        said = Members(canonicaljson.loads(data.removesuffix(b"\n")), frozenset({"format", "rotations"}), frozenset())
        if said.value("format") != FORMAT:
            raise ValueError(f"format {said.value('format')!r} is not {FORMAT}")
        rotations = [
            Members(r, frozenset({"checkpoint", "leaf", "path"}), frozenset()) for r in said.items("rotations")
        ]
        handovers = [
            Handover(
                r.text("leaf").encode(), tuple(bytes.fromhex(p) for p in r.texts("path")), r.text("checkpoint").encode()
            )
            for r in rotations
        ]
    except (ValueError, RecursionError) as error:
        raise RotationError(f"no list of key rotations: {error}") from None
    if chain_text(handovers) != data:
        raise RotationError("no list of key rotations: not in its one form")
    return handovers


def _key_json(key: Verifier) -> Json:
    pem = public_pem(key.key)
    return {"pem": pem.decode(), "sha256": hashlib.sha256(pem).hexdigest(), "verifier": key.text()}


def _key_of(value: Json) -> Verifier:
    key = Verifier.parse(Members(value, _KEY_MEMBERS, frozenset()).text("verifier"))
    if value != _key_json(key):
        raise NoteError("its PEM, hash and verifier key are not one key's")
    return key
