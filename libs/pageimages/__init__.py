"""Page images between services of one host: pixels in shared memory, leased by the writer, checked by the reader.

The writer owns the files: it unlinks one when its lease is released, when the call ends, and at its next start whatever
an earlier life left. A reader maps the file, checks length and SHA-256, and keeps its mapping even when the name is
already gone, so a reader that dies leaks nothing and a reader that lives never sees other bytes.

The data is raw pixels, rows without padding; width, height and format stand in the PageImage. (An Arrow IPC envelope
would add a parser and a 100 MB dependency to each end and no information.)
"""

import errno
import hashlib
import mmap
import os
import secrets
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from affidavit.document.v1 import document_pb2
from affidavit.libs.errors import AffidavitError

CHANNELS = {document_pb2.PIXEL_FORMAT_GRAY8: 1, document_pb2.PIXEL_FORMAT_BGR24: 3}


class LeaseFolder:
    """The writer's side: one folder below the shared-memory folder, emptied at construction and by `close`."""

    def __init__(self, root: Path, owner: str) -> None:
        """`owner` names this writer among those that share `root`; a restarted writer of the same name clears it."""
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root = root
        self._owner = owner
        self.close()

    def lease(self, pixels: bytes | memoryview) -> document_pb2.ImageHandle | None:
        """Put pixels into shared memory; None when there is no room (the caller then sends them inline)."""
        name = f"{self._owner}-{secrets.token_hex(16)}"
        path = self._root / name
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.ENOENT, errno.EROFS, errno.EACCES):
                return None
            raise
        try:
            # Reserve first: writing through a mapping of a full tmpfs would be SIGBUS, not an error.
            os.posix_fallocate(descriptor, 0, len(pixels))
            os.pwrite(descriptor, pixels, 0)
        except OSError as error:
            path.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.ENOMEM):
                return None
            raise
        finally:
            os.close(descriptor)
        return document_pb2.ImageHandle(name=name, length=len(pixels))

    def release(self, handle: document_pb2.ImageHandle) -> None:
        """End a lease. Readers that have it mapped keep their bytes."""
        (self._root / handle.name).unlink(missing_ok=True)

    def leased_bytes(self) -> int:
        """Bytes of this writer's leases now."""
        return sum(p.stat().st_size for p in self._root.glob(f"{self._owner}-*"))

    def close(self) -> None:
        for path in self._root.glob(f"{self._owner}-*"):
            path.unlink(missing_ok=True)


def free_bytes(root: Path) -> int:
    """Free bytes of the filesystem that holds the shared-memory folder; 0 when there is none."""
    try:
        return shutil.disk_usage(root).free
    except OSError:
        return 0


def pixels(image: document_pb2.PageImage, root: Path) -> NDArray[np.uint8]:
    """The pixels of a page image, read-only, shape (height, width) for GRAY8 or (height, width, 3) for BGR24.

    Raises:
        AffidavitError: HANDLE_UNREACHABLE when the handle cannot be opened here, HASH_MISMATCH when the bytes are not
            those that were announced, INVALID_OPTION when the image's fields contradict each other.
    """
    channels = CHANNELS.get(image.format)
    expected = image.width * image.height * (channels or 0)
    if not expected:
        raise AffidavitError("INVALID_OPTION", "image has no pixels or no known format", field="image")
    data = image.inline if image.WhichOneof("data") == "inline" else _map(image.handle, root)
    if len(data) != expected:
        message = f"image of {image.width} x {image.height} needs {expected} bytes and has {len(data)}"
        raise AffidavitError("INVALID_OPTION", message, field="image")
    if hashlib.sha256(data).digest() != image.sha256:
        raise AffidavitError("HASH_MISMATCH", f"page {image.page_number}: pixels do not have the announced SHA-256")
    shape = (image.height, image.width) if channels == 1 else (image.height, image.width, 3)
    return np.frombuffer(data, np.uint8).reshape(shape)


def _map(handle: document_pb2.ImageHandle, root: Path) -> mmap.mmap:
    if not handle.name or "/" in handle.name or handle.name.startswith("."):
        raise AffidavitError("INVALID_OPTION", f"handle name {handle.name!r} is no plain file name", field="handle")
    try:
        descriptor = os.open(root / handle.name, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise AffidavitError("HANDLE_UNREACHABLE", f"shared-memory handle: {os.strerror(error.errno or 0)}") from None
    try:
        if os.fstat(descriptor).st_size != handle.length:
            raise AffidavitError("HASH_MISMATCH", "shared-memory handle: the file has another length than announced")
        return mmap.mmap(descriptor, handle.length, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
