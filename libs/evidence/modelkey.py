"""The models' key pair, `models.key` and `models.pub`: a pair of its own beside the log's."""

import contextlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.evidence.durablefile import create_file
from affidavit.libs.evidence.keys import create_private_key, load_private_key, public_pem


def model_key(folder: Path) -> Ed25519PrivateKey:
    """The private key of `folder`, made (mode 0600) when there is none.

    Raises:
        KeyFileError: it is readable to others, or no Ed25519 key in PEM.
        OSError: it cannot be read or made.
    """
    path = folder / "models.key"
    if not path.exists():
        with contextlib.suppress(FileExistsError):  # another process made it just now
            create_private_key(path)
    key = load_private_key(path)
    public = folder / "models.pub"
    if not public.exists():
        with contextlib.suppress(FileExistsError):
            create_file(public, public_pem(key.public_key()), 0o644)
    return key
