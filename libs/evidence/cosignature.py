"""C2SP `tlog-cosignature`, the Ed25519 form: a witness says that a log was append-only up to a checkpoint, and when.

The signed message is `cosignature/v1`, `time <seconds>` and the checkpoint's text; the signature's blob is the time
(8 bytes, big-endian) and 64 bytes Ed25519.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from affidavit.libs.evidence.keys import Signer
from affidavit.libs.evidence.note import NoteError, Signature, decode_base64, is_key_name

COSIGNATURE = b"\x04"  # signature type in the key id
_TIME_BYTES = 8


@dataclass(frozen=True)
class WitnessKey:
    """A witness's public key, trusted under a name."""

    name: str
    key: Ed25519PublicKey

    @property
    def key_id(self) -> bytes:
        """The first 4 bytes of SHA-256(name ‖ newline ‖ 0x04 ‖ key)."""
        return hashlib.sha256(self.name.encode() + b"\n" + COSIGNATURE + self.key.public_bytes_raw()).digest()[:4]

    def text(self) -> str:
        """The verifier key as others write it: `name+id+base64`."""
        encoded = base64.b64encode(COSIGNATURE + self.key.public_bytes_raw()).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> "WitnessKey":
        """Raises NoteError unless `text` is `name+id+base64` of a cosigner's Ed25519 key and the id is the key's."""
        parts = text.split("+", 2)
        if len(parts) != 3 or not is_key_name(parts[0]):
            raise NoteError(f"{text!r} is no verifier key")
        blob = decode_base64(parts[2])
        if blob[:1] != COSIGNATURE or len(blob) != 33:
            raise NoteError(f"{text!r} is no witness's Ed25519 key")
        witness = cls(parts[0], Ed25519PublicKey.from_public_bytes(blob[1:]))
        if witness.key_id.hex() != parts[1]:
            raise NoteError(f"{text!r}: the key's id is {witness.key_id.hex()}")
        return witness


@dataclass(frozen=True)
class Cosigned:
    """A witness's word: at `time` (POSIX seconds) this was the newest consistent tree head that it had seen."""

    name: str
    time: int
    signature: Signature


def cosign(text: str, name: str, key: Signer, time: int) -> Signature:
    """The cosignature of a checkpoint's `text` (with its last newline) at `time`, POSIX seconds."""
    signature = key.sign(_message(text, time))
    blob = time.to_bytes(_TIME_BYTES, "big") + signature
    return Signature(name, WitnessKey(name, key.public_key()).key_id, blob)


def cosignatures(text: str, signatures: Sequence[Signature], trusted: Sequence[WitnessKey]) -> tuple[Cosigned, ...]:
    """Those of `signatures` that are `trusted` witnesses' over `text`, one a witness, the newest; others are ignored.

    Raises:
        NoteError: a trusted witness's signature is wrong.
    """
    keys = {(witness.name, witness.key_id): witness.key for witness in trusted}
    found: dict[bytes, Cosigned] = {}
    for signature in signatures:
        key = keys.get((signature.name, signature.key_id))
        if key is None:
            continue
        time = int.from_bytes(signature.blob[:_TIME_BYTES], "big")
        try:
            key.verify(signature.blob[_TIME_BYTES:], _message(text, time))
        except InvalidSignature:
            raise NoteError(f"the cosignature of {signature.name} is wrong") from None
        raw = key.public_bytes_raw()  # one witness under two names is still one
        if raw not in found or found[raw].time < time:
            found[raw] = Cosigned(signature.name, time, signature)
    return tuple(found.values())


def _message(text: str, time: int) -> bytes:
    if time >= 1 << 63:
        raise NoteError("a cosignature's time is below 2^63 seconds")
    return f"cosignature/v1\ntime {time}\n{text}".encode()
