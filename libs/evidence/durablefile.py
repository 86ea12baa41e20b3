"""Files that are there whole or not at all, also after a power cut."""

import os
import secrets
from pathlib import Path


def replace_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Make `path` hold `data`: written beside it, synced, renamed over it, the folder synced.

    Raises:
        OSError: the old content is still there, whole, or the new one is.
    """
    # One fixed name: a file left by a crash is overwritten by the next try, never collected.
    temporary = path.with_name(path.name + ".new")
    _write(temporary, data, mode, os.O_TRUNC)
    temporary.replace(path)
    sync_folder(path.parent)


def create_file(path: Path, data: bytes, mode: int) -> None:
    """Create `path` with `data`, whole from its first moment.

    Raises:
        FileExistsError: it is there already; its content is kept.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    try:
        _write(temporary, data, mode, os.O_EXCL)
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make sure of `folder` and the folders above it: they are there, and their names are durable.

    A name in a folder that was itself never synced goes with it at a power cut, however well its file was.

    Raises:
        OSError: the disk refuses.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for each in reversed(missing or [folder]):  # one that is there may be of a process that died before its sync
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Make names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, data: bytes, mode: int, flags: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | flags, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
