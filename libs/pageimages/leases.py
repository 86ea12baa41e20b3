"""The writer's side: leases on pixels in shared memory."""

import errno
import fcntl
import hashlib
import mmap
import os
import secrets
import stat
from pathlib import Path
from typing import NamedTuple

from affidavit.document.v1 import document_pb2

# No shared memory here, none left, or none for us: the caller then sends the pixels inline.
_NO_ROOM = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOMEM,
    errno.EFBIG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
}


class Lease(NamedTuple):
    """Pixels that stand in shared memory."""

    handle: document_pb2.ImageHandle
    sha256: bytes  # of the bytes in the lease itself, which nobody but this process can have written


class LeaseFolder:
    """One writer's leases below the shared-memory folder, which several writers share.

    A writer holds a lock on each of its leases; a starting one removes those of its kind that nobody holds.
    `lease` may be called from any thread.
    """

    def __init__(self, root: Path, owner: str, *, max_bytes: int = 1 << 30) -> None:
        """
        Args:
            root: the shared-memory folder; it need not exist, and may be unusable.
            owner: kind of writer, for example "preprocess": it clears what dead writers of its kind left.
            max_bytes: most bytes leased at once.
        """
        self._root = root
        self._owner = owner
        self._max_bytes = max_bytes
        # Mapped while leased: the mapping keeps the lock, and the bytes outlive a name that somebody removes.
        self._leases: dict[str, mmap.mmap] = {}
        if self._is_usable():
            self._clear_after_the_dead()

    def lease(self, pixels: bytes | memoryview) -> Lease | None:
        """Put pixels into shared memory; None when there is no room."""
        if self.leased_bytes() + len(pixels) > self._max_bytes or not self._is_usable():
            return None
        name = f"{self._owner}-{secrets.token_hex(16)}"
        path = self._root / name
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno in _NO_ROOM:
                return None
            raise
        try:
            # A writer that starts before this line takes the lease for a dead one's and removes its name; the reader then
            # asks for the page again.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Reserve first: writing through a mapping of a full tmpfs would be SIGBUS, not an error.
            os.posix_fallocate(descriptor, 0, len(pixels))
            copy = mmap.mmap(descriptor, len(pixels))
        except OSError as error:
            path.unlink(missing_ok=True)
            if error.errno in _NO_ROOM:
                return None
            raise
        finally:
            os.close(descriptor)
        self._leases[name] = copy
        copy[:] = pixels
        # The hash is taken over the copy: `pixels` may be memory that a sandboxed process can still write.
        digest = hashlib.sha256(copy).digest()
        return Lease(document_pb2.ImageHandle(name=name, length=len(copy)), digest)

    def read(self, name: str) -> bytes:
        """The pixels of a lease that has not been released."""
        return self._leases[name][:]

    def release(self, name: str) -> None:
        """End a lease. Readers that have it mapped keep their bytes."""
        copy = self._leases.pop(name, None)
        if copy is not None:
            (self._root / name).unlink(missing_ok=True)
            copy.close()

    def leased_bytes(self) -> int:
        """Bytes of this writer's leases now."""
        return sum(len(copy) for copy in list(self._leases.values()))

    def close(self) -> None:
        """End all leases."""
        for name in list(self._leases):
            self.release(name)

    def _is_usable(self) -> bool:
        """Whether the folder is there, or can be made, and is ours: its name under /dev/shm is predictable, and pages do
        not go into a folder that somebody else made."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            facts = self._root.lstat()
        except OSError:
            return False
        return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()

    def _clear_after_the_dead(self) -> None:
        # By locks and not by process ids: two containers that share the folder do not share their process ids.
        for lease in self._root.glob(f"{self._owner}-*"):
            try:
                descriptor = os.open(lease, os.O_RDWR | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lease.unlink(missing_ok=True)
            except OSError:
                continue  # somebody holds it
            finally:
                os.close(descriptor)
