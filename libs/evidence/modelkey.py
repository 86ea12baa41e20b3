"""The models' key pair, `models.key` and `models.pub`: a pair of its own beside the log's."""

import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.evidence.durablefile import create_file
from affidavit.libs.evidence.keys import KeyFileError, public_pem


def model_key(folder: Path) -> Ed25519PrivateKey:
    """The private key of `folder`, made (mode 0600) when there is none.

    Raises:
        KeyFileError: it is readable to others, or no Ed25519 key in PEM.
        OSError: it cannot be read or made.
    """
    path = folder / "models.key"
    if not path.exists():
        made = Ed25519PrivateKey.generate()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        create_file(path, made.private_bytes(*pem), 0o600)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise KeyFileError(f"{path} can be read by others: chmod 600 {path}")
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise KeyFileError(f"{path} is no PEM private key: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path} is no Ed25519 key")
    public = folder / "models.pub"
    if not public.exists():
        create_file(public, public_pem(key.public_key()), 0o644)
    return key
