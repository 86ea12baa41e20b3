"""The reader's side: a page image's pixels, checked."""

import hashlib
import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from affidavit.document.v1 import document_pb2
from affidavit.libs.errors import AffidavitError

# Bytes a pixel.
CHANNELS = {document_pb2.PIXEL_FORMAT_GRAY8: 1, document_pb2.PIXEL_FORMAT_BGR24: 3}


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
    length = len(image.inline) if image.WhichOneof("data") == "inline" else image.handle.length
    if length != expected:
        message = f"image of {image.width} x {image.height} needs {expected} bytes and has {length}"
        raise AffidavitError("INVALID_OPTION", message, field="image")
    data = image.inline if image.WhichOneof("data") == "inline" else _map(image.handle, root)
    if hashlib.sha256(data).digest() != image.sha256:
        raise AffidavitError("HASH_MISMATCH", f"page {image.page_number}: pixels do not have the announced SHA-256")
    shape = (image.height, image.width) if channels == 1 else (image.height, image.width, 3)
    return np.frombuffer(data, np.uint8).reshape(shape)


def _map(handle: document_pb2.ImageHandle, root: Path) -> mmap.mmap:
    if not handle.name or "/" in handle.name or "\0" in handle.name or handle.name.startswith("."):
        raise AffidavitError("INVALID_OPTION", f"handle name {handle.name!r} is no plain file name", field="handle")
    try:
        descriptor = os.open(root / handle.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise AffidavitError("HANDLE_UNREACHABLE", f"shared-memory handle: {os.strerror(error.errno or 0)}") from None
    try:
        if os.fstat(descriptor).st_size != handle.length:
            raise AffidavitError("HASH_MISMATCH", "shared-memory handle: the file has another length than announced")
        # Populated at once: the hash reads every page of it anyway.
        return mmap.mmap(descriptor, handle.length, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
    finally:
        os.close(descriptor)
