"""Commitments: SHA-256(salt ‖ bytes), which hide what they bind until the salt is shown.

A plain hash of a phone number is found by dictionary; a salted one is not, and once the salt is erased nobody can tell
any more what was committed to. By hand: `cat salt.bin result.json | sha256sum`.

>>> salt = bytes(32)
>>> commit(salt, b"result") == Commitment(salt).update(b"re").update(b"sult").digest()
True
"""

import hashlib
import secrets
from typing import Self

SALT_BYTES = 32


def new_salt() -> bytes:
    """A record's salt: 32 random bytes."""
    return secrets.token_bytes(SALT_BYTES)


def commit(salt: bytes, data: bytes) -> bytes:
    """SHA-256(salt ‖ data), 32 bytes."""
    return Commitment(salt).update(data).digest()


class Commitment:
    """A commitment to bytes that arrive in pieces."""

    def __init__(self, salt: bytes) -> None:
        """Raises ValueError unless `salt` has 32 bytes: another length would let the same bytes be split elsewhere."""
        if len(salt) != SALT_BYTES:
            raise ValueError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
        self._hash = hashlib.sha256(salt)

    def update(self, chunk: bytes | bytearray | memoryview) -> Self:
        self._hash.update(chunk)
        return self

    def digest(self) -> bytes:
        """The commitment to everything so far, 32 bytes; more may follow."""
        return self._hash.digest()
