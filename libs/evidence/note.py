"""Signed notes and checkpoints: C2SP `signed-note` and `tlog-checkpoint`, with Ed25519 signatures.

affidavit.local/0f3c…          the origin: the log's name, and the name of its key
15                             the tree's size
rKbDipCvhuX1GZ7g5BBe…          the root hash
                               (an empty line ends the text; the text is signed with its last newline)
— affidavit.local/0f3c… M9e0…  base64 of 4 bytes key id and 64 bytes signature
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from affidavit.libs.evidence.keys import Signer
from affidavit.libs.evidence.merkle import HASH_BYTES

ED25519 = b"\x01"  # signature type in the key id
MAX_NOTE_BYTES = 65_536
MAX_SIGNATURES = 64
_DASH = "— "
_KEY_ID_BYTES = 4


class NoteError(ValueError):
    """A note is malformed, or no trusted key signed it."""


@dataclass(frozen=True)
class Verifier:
    """A key that is trusted under a name."""

    name: str
    key: Ed25519PublicKey
    until: int | None = None  # the largest tree that it may sign, once it was retired; None for any

    @property
    def key_id(self) -> bytes:
        """The first 4 bytes of SHA-256(name ‖ newline ‖ type ‖ key)."""
        return hashlib.sha256(self.name.encode() + b"\n" + ED25519 + self.key.public_bytes_raw()).digest()[
            :_KEY_ID_BYTES
        ]

    def text(self) -> str:
        """The verifier key as others write it: `name+id+base64`."""
        encoded = base64.b64encode(ED25519 + self.key.public_bytes_raw()).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> "Verifier":
        """Raises NoteError unless `text` is `name+id+base64` of an Ed25519 key and the id is the key's."""
        parts = text.split("+", 2)
        if len(parts) != 3 or not is_key_name(parts[0]):
            raise NoteError(f"{text!r} is no verifier key")
        blob = decode_base64(parts[2])
        if blob[:1] != ED25519 or len(blob) != 33:
            raise NoteError(f"{text!r} is no Ed25519 key")
        verifier = cls(parts[0], Ed25519PublicKey.from_public_bytes(blob[1:]))
        if verifier.key_id.hex() != parts[1]:
            raise NoteError(f"{text!r}: the key's id is {verifier.key_id.hex()}")
        return verifier


@dataclass(frozen=True)
class Signature:
    """One signature line."""

    name: str
    key_id: bytes
    blob: bytes

    def line(self) -> str:
        return f"{_DASH}{self.name} {base64.b64encode(self.key_id + self.blob).decode()}\n"


def sign_note(text: str, name: str, key: Signer) -> bytes:
    """`text` (which ends in a newline) with one signature under `name`.

    Raises:
        NoteError: `text` or `name` has no place in a note.
    """
    _check_text(text)
    if not is_key_name(name):
        raise NoteError(f"{name!r} is no key name")
    signature = Signature(name, Verifier(name, key.public_key()).key_id, key.sign(text.encode()))
    return f"{text}\n{signature.line()}".encode()


def signed_also(note: bytes, name: str, key: Signer) -> bytes:
    """`note` with one more signature, after those that it has. Raises as `sign_note` and `split_note`."""
    text, _ = split_note(note)
    return note + sign_note(text, name, key).removeprefix(f"{text}\n".encode())


def split_note(note: bytes) -> tuple[str, tuple[Signature, ...]]:
    """A note's text (with its last newline) and signatures, not yet verified.

    Raises:
        NoteError: it is not a note.
    """
    if len(note) > MAX_NOTE_BYTES:
        raise NoteError(f"a note has at most {MAX_NOTE_BYTES} bytes")
    try:
        whole = note.decode()
    except UnicodeDecodeError:
        raise NoteError("a note is UTF-8") from None
    before, blank, block = whole.rpartition("\n\n")
    if not blank or not block.endswith("\n"):
        raise NoteError("a note is a text, an empty line and signature lines")
    text = before + "\n"
    _check_text(text)
    lines = block[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise NoteError(f"a note has at most {MAX_SIGNATURES} signatures")
    return text, tuple(_parse_signature(line) for line in lines)


def open_note(note: bytes, verifiers: Sequence[Verifier]) -> str:
    """The text of a note that at least one of `verifiers` signed. Signatures of unknown keys are passed over.

    Raises:
        NoteError: not a note, a known key's signature is wrong, or no known key signed.
    """
    text, signatures = split_note(note)
    known = {(v.name, v.key_id): v.key for v in verifiers}
    signed = False
    for signature in signatures:
        key = known.get((signature.name, signature.key_id))
        if key is None:
            continue
        try:
            key.verify(signature.blob, text.encode())
        except InvalidSignature:
            raise NoteError(f"the signature of {signature.name} is wrong") from None
        signed = True
    if not signed:
        raise NoteError("no known key signed it: " + ", ".join(f"{s.name} ({s.key_id.hex()})" for s in signatures))
    return text


@dataclass(frozen=True)
class TreeHead:
    """What a checkpoint says of a log."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def text(self) -> str:
        """The checkpoint's text, unsigned."""
        return "\n".join([self.origin, str(self.size), base64.b64encode(self.root).decode(), *self.extensions]) + "\n"

    @classmethod
    def parse(cls, text: str) -> "TreeHead":
        """Raises NoteError unless `text` is a checkpoint's text in exactly one form."""
        lines = text.split("\n")[:-1]
        if len(lines) < 3 or not all(lines):
            raise NoteError("a checkpoint is an origin, a size and a root hash, each on a line")
        origin, size, encoded, *extensions = lines
        if not (size.isascii() and size.isdecimal()) or len(size) > 20 or str(int(size)) != size:
            raise NoteError(f"{size!r} is no tree size")
        root = decode_base64(encoded)
        if len(root) != HASH_BYTES:
            raise NoteError("a checkpoint's root hash has 32 bytes")
        return cls(origin, int(size), root, tuple(extensions))

    @classmethod
    def unverified(cls, note: bytes) -> "TreeHead":
        """What a checkpoint note says, whoever signed it. Raises NoteError unless it is one."""
        return cls.parse(split_note(note)[0])


def sign_checkpoint(head: TreeHead, key: Signer) -> bytes:
    """The checkpoint of `head` as a note, signed by the log's key under the log's origin."""
    return sign_note(head.text(), head.origin, key)


def open_checkpoint(note: bytes, verifiers: Sequence[Verifier]) -> TreeHead:
    """The tree head that a known key signed. A retired key counts only for trees that it may have signed.

    Raises:
        NoteError: see `open_note` and `TreeHead.parse`; or only retired keys signed what came after them.
    """
    text, signatures = split_note(note)
    head = TreeHead.parse(text)
    late = [v for v in verifiers if v.until is not None and v.until < head.size]
    able = [v for v in verifiers if v not in late]
    for retired in late:
        named = {(s.name, s.key_id) for s in signatures}
        if (retired.name, retired.key_id) in named and not named & {(v.name, v.key_id) for v in able}:
            signer = f"it covers {head.size} records and is signed with {retired.key_id.hex()}"
            raise NoteError(f"{signer}, a key that was retired at {retired.until}")
    open_note(note, able)
    return head


def _check_text(text: str) -> None:
    if not text.endswith("\n") or min(text.replace("\n", " ")) < " ":
        raise NoteError("a note's text ends in a newline and has no other control characters")


def _parse_signature(line: str) -> Signature:
    name, space, encoded = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH) or not space or not is_key_name(name):
        raise NoteError(f"{line!r} is no signature line")
    blob = decode_base64(encoded)
    if len(blob) <= _KEY_ID_BYTES:
        raise NoteError(f"{line!r} has no signature")
    return Signature(name, blob[:_KEY_ID_BYTES], blob[_KEY_ID_BYTES:])


def is_key_name(name: str) -> bool:
    """Whether a note can carry `name` as the name of a key."""
    return "+" not in name and name.split() == [name] and min(name) >= " "


def decode_base64(text: str) -> bytes:
    """Base64 in its one form: Python alone would let the unused bits of the last letter be anything."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NoteError(f"{text!r} is no base64") from None
    if base64.b64encode(data).decode() != text:
        raise NoteError(f"{text!r} is not the one base64 form of its bytes")
    return data
