"""Leases in shared memory end with their writer, and a reader uses only bytes that have the announced hash."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from affidavit.document.v1 import document_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.pageimages import LeaseFolder, pixels

DATA = bytes(range(200)) * 3


def image(folder: LeaseFolder, data: bytes = DATA) -> document_pb2.PageImage:
    lease = folder.lease(data)
    assert lease is not None
    return document_pb2.PageImage(
        page_number=1,
        width=20,
        height=10,
        format=document_pb2.PIXEL_FORMAT_BGR24,
        sha256=lease.sha256,
        handle=lease.handle,
    )


def leases(root: Path) -> list[str]:
    return [path.name for path in root.iterdir()]


def test_a_reader_sees_the_pixels_in_their_shape(tmp_path: Path) -> None:
    folder = LeaseFolder(tmp_path, "test")
    page = pixels(image(folder), tmp_path)
    assert (page.shape, page.tobytes(), page.flags.writeable) == ((10, 20, 3), DATA, False)
    folder.close()


def test_the_hash_is_of_the_leased_bytes(tmp_path: Path) -> None:
    folder = LeaseFolder(tmp_path, "test")
    assert image(folder).sha256 == hashlib.sha256(DATA).digest()
    folder.close()


def test_a_reader_keeps_its_pixels_after_the_release(tmp_path: Path) -> None:
    folder = LeaseFolder(tmp_path, "test")
    leased = image(folder)
    page = pixels(leased, tmp_path)
    folder.release(leased.handle.name)
    assert leases(tmp_path) == []
    assert folder.leased_bytes() == 0
    assert page.tobytes() == DATA
    with pytest.raises(AffidavitError) as caught:
        pixels(leased, tmp_path)
    assert caught.value.reason == "HANDLE_UNREACHABLE"
    folder.close()


def test_the_writer_can_read_a_lease_whose_name_somebody_removed(tmp_path: Path) -> None:
    folder = LeaseFolder(tmp_path, "test")
    leased = image(folder)
    (tmp_path / leased.handle.name).unlink()
    assert folder.read(leased.handle.name) == DATA
    folder.close()


def test_changed_bytes_are_refused(tmp_path: Path) -> None:
    folder = LeaseFolder(tmp_path, "test")
    leased = image(folder)
    with (tmp_path / leased.handle.name).open("r+b") as file:
        file.write(b"\xff")
    with pytest.raises(AffidavitError) as caught:
        pixels(leased, tmp_path)
    assert caught.value.reason == "HASH_MISMATCH"
    folder.close()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", ".hidden", "", "a\0b"])
def test_a_handle_names_a_plain_file(tmp_path: Path, name: str) -> None:
    leased = document_pb2.PageImage(width=20, height=10, format=document_pb2.PIXEL_FORMAT_BGR24)
    leased.handle.name, leased.handle.length = name, 600
    with pytest.raises(AffidavitError) as caught:
        pixels(leased, tmp_path)
    assert caught.value.reason == "INVALID_OPTION"


def test_a_handle_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(DATA)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    leased = document_pb2.PageImage(width=20, height=10, format=document_pb2.PIXEL_FORMAT_BGR24)
    leased.handle.name, leased.handle.length = "link", 600
    with pytest.raises(AffidavitError) as caught:
        pixels(leased, tmp_path)
    assert caught.value.reason == "HANDLE_UNREACHABLE"


@pytest.mark.parametrize(
    "root",
    [
        pytest.param("/proc/affidavit", id="unwritable"),
        pytest.param("/dev/null", id="no folder"),
        pytest.param("/dev/full/leases", id="below a file"),
    ],
)
def test_without_a_usable_folder_nothing_is_leased(root: str) -> None:
    folder = LeaseFolder(Path(root), "test")
    assert folder.lease(DATA) is None
    folder.close()


def test_somebody_elses_folder_is_not_used(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (tmp_path / "theirs").symlink_to(mine)
    folder = LeaseFolder(tmp_path / "theirs", "test")
    assert folder.lease(DATA) is None
    assert list(mine.iterdir()) == []
    folder.close()


def test_no_more_is_leased_than_allowed(tmp_path: Path) -> None:
    folder = LeaseFolder(tmp_path, "test", max_bytes=1000)
    first = folder.lease(DATA)
    assert first is not None
    assert folder.lease(DATA) is None
    folder.release(first.handle.name)
    assert folder.lease(DATA) is not None
    folder.close()


_WRITER = """
import os, sys
from pathlib import Path
from affidavit.libs.pageimages import LeaseFolder
folder = LeaseFolder(Path(sys.argv[1]), "test")
folder.lease(bytes(600))
print("leased", flush=True)
sys.stdin.read()
"""


def test_a_killed_writers_leases_go_with_the_next_start_and_a_living_ones_stay(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"leased\n"
        before = set(leases(tmp_path))
        assert len(before) == 2
        os.kill(writers[0].pid, signal.SIGKILL)
        writers[0].wait(10)
        folder = LeaseFolder(tmp_path, "test")
        after = set(leases(tmp_path))
        assert len(after) == 1
        assert after < before
        folder.close()
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
