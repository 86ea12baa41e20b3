"""The log's key pair: `log.key` (PEM PKCS #8, mode 0600) and `log.pub` (PEM SubjectPublicKeyInfo)."""

import stat
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from affidavit.libs.evidence.durablefile import create_file, make_folder

PRIVATE_NAME = "log.key"
PUBLIC_NAME = "log.pub"


class Signer(Protocol):
    """What signs with Ed25519: a private key in memory, or one that never leaves its token."""

    def public_key(self) -> Ed25519PublicKey: ...

    def sign(self, data: bytes, /) -> bytes:
        """The 64-byte signature (RFC 8032)."""
        ...


class KeyFileError(Exception):
    """A key file is open to others, of another kind, or not the half of its pair; the message says which."""


def create_key(folder: Path) -> Ed25519PrivateKey:
    """Make the pair in `folder` (created with mode 0700 if need be).

    Raises:
        FileExistsError: a private key is there already.
    """
    key = create_private_key(folder / PRIVATE_NAME)
    public_beside(folder, key)
    return key


def create_private_key(path: Path) -> Ed25519PrivateKey:
    """Make a private key in the PEM file `path` (mode 0600), its folder (0700) too if need be.

    Raises:
        FileExistsError: it is there already.
    """
    make_folder(path.parent, 0o700)
    key = Ed25519PrivateKey.generate()
    create_file(path, private_pem(key), 0o600)
    return key


def load_key(folder: Path) -> Ed25519PrivateKey:
    """The private key of `folder`; a public key that is missing beside it is written again.

    Raises:
        FileNotFoundError: there is no private key.
        KeyFileError: it is readable to others, no Ed25519 key, or the public key beside it is another one.
    """
    key = load_private_key(folder / PRIVATE_NAME)
    public_beside(folder, key)
    return key


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """A private key from its PEM file; nothing is written.

    Raises:
        FileNotFoundError: there is none.
        KeyFileError: it is readable to others, or no Ed25519 key.
    """
    data = path.read_bytes()
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise KeyFileError(f"{path} can be read by others: chmod 600 {path}")
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise KeyFileError(f"{path} is no PEM private key: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path} is no Ed25519 key")
    return key


def load_public_key(path: Path) -> Ed25519PublicKey:
    """A public key from its PEM file.

    Raises:
        OSError: it cannot be read.
        KeyFileError: it is no Ed25519 public key in PEM.
    """
    try:
        return parse_public_pem(path.read_bytes())
    except ValueError as error:
        raise KeyFileError(f"{path} is {error}") from None


def parse_public_pem(data: bytes) -> Ed25519PublicKey:
    """The key in a PEM. Raises ValueError: no PEM public key, or no Ed25519 key."""
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"no PEM public key: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("no Ed25519 key")
    return key


def public_pem(key: Ed25519PublicKey) -> bytes:
    """PEM SubjectPublicKeyInfo, as `openssl pkey -pubin` reads it."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def private_pem(key: Ed25519PrivateKey) -> bytes:
    """PEM PKCS #8, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_beside(folder: Path, key: Signer) -> None:
    """See that `log.pub` in `folder` is the public half of `key`; written where it is missing.

    Raises:
        KeyFileError: it is another one.
    """
    path = folder / PUBLIC_NAME
    if not path.exists():
        create_file(path, public_pem(key.public_key()), 0o644)
    elif load_public_key(path).public_bytes_raw() != key.public_key().public_bytes_raw():
        raise KeyFileError(f"{path} is not the public half of {folder / PRIVATE_NAME}")
