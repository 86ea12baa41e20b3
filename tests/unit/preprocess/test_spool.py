"""An upload is hashed while it arrives and is gone when its call ends, however that is."""

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from affidavit.libs.errors import AffidavitError
from affidavit.services.preprocess.spool import SpoolFolder

DATA = os.urandom(3 << 20)


async def test_an_upload_has_its_bytes_and_their_hash(tmp_path: Path) -> None:
    with SpoolFolder(tmp_path).upload(len(DATA)) as upload:
        for start in range(0, len(DATA), 100_000):
            await upload.write(DATA[start : start + 100_000])
        await upload.finish()
        assert (upload.size, upload.sha256) == (len(DATA), hashlib.sha256(DATA).digest())
        with os.fdopen(upload.open_read_only(), "rb") as file:
            assert file.read() == DATA
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.write(file.fileno(), b"x")


async def test_an_upload_never_has_a_name(tmp_path: Path) -> None:
    with SpoolFolder(tmp_path).upload(len(DATA)) as upload:
        await upload.write(DATA)
        assert list(tmp_path.iterdir()) == []


async def test_an_upload_over_the_limit_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with SpoolFolder(tmp_path).upload(100) as upload:
        await upload.write(bytes(100))
        with pytest.raises(AffidavitError) as caught:
            await upload.write(b"x")
        assert caught.value.reason == "UPLOAD_TOO_LARGE"


async def test_an_upload_that_is_abandoned_in_mid_write_leaves_no_open_file(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))

    async def write() -> None:
        with SpoolFolder(tmp_path).upload(len(DATA)) as upload:
            await upload.write(DATA)

    task = asyncio.create_task(write())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    async with asyncio.timeout(10):
        while set(os.listdir("/proc/self/fd")) > before:
            await asyncio.sleep(0.01)


def test_what_an_earlier_life_left_is_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "upload-123-abc").write_bytes(b"left")
    (tmp_path / "somebody-elses").write_bytes(b"kept")
    SpoolFolder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["somebody-elses"]
