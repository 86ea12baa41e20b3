"""Uploads on disk: files without a name, so that nothing is left of them however the process ends."""

import asyncio
import errno
import hashlib
import os
from pathlib import Path
from typing import Self

from affidavit.libs.errors import AffidavitError
from affidavit.services.preprocess import metrics

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PREFIX = "upload-"
# Written and hashed in pieces of this size, on a thread.
_PIECE_BYTES = 1 << 20


class SpoolFolder:
    """Where uploads go."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder; removes what earlier lives left, where the filesystem knows no nameless files."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f"{_PREFIX}*"):
            left.unlink(missing_ok=True)
        self._folder = folder

    def upload(self, max_bytes: int) -> "Upload":
        return Upload(self._open(), max_bytes)

    def _open(self) -> int:
        try:
            try:
                return os.open(self._folder, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                    raise
            path = self._folder / f"{_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            path.unlink(missing_ok=True)
            return descriptor
        except OSError as error:
            raise _refused(error) from None


class Upload:
    """One document on its way in; a context manager, after which the document is gone."""

    def __init__(self, descriptor: int, max_bytes: int) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._pending = bytearray()
        self._hash = hashlib.sha256()
        self._written = 0
        self._writing: asyncio.Future[None] | None = None
        self.size = 0
        self.sha256 = b""  # after `finish`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        metrics.spool_bytes.dec(self._written)
        if self._writing:  # the call was cancelled and the thread still needs the file
            self._writing.add_done_callback(self._close)
        else:
            os.close(self._descriptor)

    async def write(self, chunk: bytes) -> None:
        """Append a piece.

        Raises:
            AffidavitError: UPLOAD_TOO_LARGE, STORAGE_FULL.
        """
        self.size += len(chunk)
        if self.size > self._max_bytes:
            raise AffidavitError("UPLOAD_TOO_LARGE", f"the document is larger than {self._max_bytes} bytes")
        self._pending += chunk
        if len(self._pending) >= _PIECE_BYTES:
            await self._flush()

    async def finish(self) -> None:
        """The document is complete: all of it is in the file, and `sha256` is known."""
        await self._flush()
        self.sha256 = self._hash.digest()

    def open_read_only(self) -> int:
        """A descriptor that cannot write, for a worker; the caller closes it."""
        return os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDONLY)

    async def _flush(self) -> None:
        if not self._pending:
            return
        piece, self._pending = self._pending, bytearray()
        self._writing = asyncio.get_running_loop().run_in_executor(None, self._append, piece)
        try:
            await asyncio.shield(self._writing)
        except OSError as error:
            self._writing = None
            raise _refused(error) from None
        self._writing = None
        self._written += len(piece)
        metrics.spool_bytes.inc(len(piece))

    def _append(self, piece: bytearray) -> None:
        self._hash.update(piece)
        view = memoryview(piece)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _close(self, writing: asyncio.Future[None]) -> None:
        writing.exception()  # nobody else will ask
        os.close(self._descriptor)


def _refused(error: OSError) -> AffidavitError:
    if error.errno in _FULL:
        return AffidavitError("STORAGE_FULL", "no room on disk for the upload; try again later")
    return AffidavitError("INTERNAL", f"the spool cannot be written: {os.strerror(error.errno or 0)}")
