"""What the archive asks of an object store, and the four things that it does with one.

An object is never deleted here: no method does it.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from affidavit.libs.errors import AffidavitError


@dataclass(frozen=True)
class Copy:
    """One version of an object. `latest` is False once a later version or a delete marker stands over it."""

    key: str
    version: str
    latest: bool


@dataclass(frozen=True)
class Kept:
    """What a version holds, and until when it cannot be erased (None: it can)."""

    data: bytes
    retain_until: datetime | None


class ObjectStore(Protocol):
    """Where segments go. Every method raises AffidavitError: SERVICE_UNAVAILABLE when the store does not answer,
    INVALID_OPTION when it is none that can keep an archive."""

    @property
    def place(self) -> str:
        """Its name, as the setting gives it."""
        ...

    def check(self) -> None:
        """See that it keeps what it is given, and that its clock and ours agree."""
        ...

    def put(self, key: str, data: bytes, retain_until: datetime) -> None:
        """Store an object that cannot be erased before `retain_until` (UTC, whole seconds)."""
        ...

    def copies(self, key: str) -> list[Copy]:
        """All versions of an object, the oldest first: it was written by whoever wrote first, and cannot be replaced."""
        ...

    def read(self, copy: Copy) -> Kept:
        """One version, whole."""
        ...

    def extend(self, copy: Copy, retain_until: datetime) -> None:
        """Move a version's date further away, never nearer."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Keys that begin with `prefix`, in rising order, also where a delete marker stands over them."""
        ...


class Found(NamedTuple):
    """A version and what it holds."""

    copy: Copy
    kept: Kept


def find(store: ObjectStore, key: str, sha256: bytes) -> Found | None:
    """The oldest version of `key` that has the hash; None when there is none."""
    for copy in store.copies(key):
        kept = store.read(copy)
        if hashlib.sha256(kept.data).digest() == sha256:
            return Found(copy, kept)
    return None


def ensure(store: ObjectStore, key: str, data: bytes, retain_until: datetime) -> None:
    """Have `data` at `key` until `retain_until`, at least: what an earlier try left is used, its date moved if need be."""
    found = find(store, key, hashlib.sha256(data).digest())
    if found is None:
        store.put(key, data, retain_until)
        return
    copy, kept = found
    if kept.retain_until is None or kept.retain_until < retain_until:
        store.extend(copy, retain_until)


def read_back(store: ObjectStore, key: str, sha256: bytes, retain_until: datetime) -> Found:
    """The version of `key` that has the hash, once it is seen that it cannot be erased before `retain_until`.

    Raises:
        AffidavitError: HASH_MISMATCH: no version has the hash, or the one that has it may go too early.
    """
    found = find(store, key, sha256)
    if found is None:
        message = f"{store.place}: no version of {key} has the bytes that were archived"
        raise AffidavitError("HASH_MISMATCH", message)
    until = found.kept.retain_until
    if until is None or until < retain_until:
        message = f"{store.place}: {key} can be erased {f'from {until:%FT%TZ}' if until else 'at any time'}"
        raise AffidavitError("HASH_MISMATCH", f"{message}, it is to be kept until {retain_until:%FT%TZ}")
    return found


def first_written(store: ObjectStore, key: str) -> Found | None:
    """The oldest version of `key`, for where no hash is known."""
    copies = store.copies(key)
    return Found(copies[0], store.read(copies[0])) if copies else None
