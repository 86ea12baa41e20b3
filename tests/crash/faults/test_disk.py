"""The disk of the fault layer forgets what a real one may forget, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.faults.disk import Disk, Variant
from tests.crash.faults.preload import Faults

PRELUDE = """
import errno, os, sys
from pathlib import Path
root = Path(sys.argv[1])
def put(name, data, flags=os.O_WRONLY | os.O_CREAT, *, sync=True):
    file = os.open(root / name, flags)
    count = os.write(file, data)
    if sync: os.fsync(file)
    os.close(file)
    return count
def sync(name=""):
    folder = os.open(root / name, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
"""


def run(place: Path, script: str, **faults) -> tuple[Disk, subprocess.CompletedProcess[str]]:
    """Run `script` on the disk; its journal must tell of all that lies there afterwards."""
    root, journal = place / "root", place / "journal"
    root.mkdir(exist_ok=True)
    disk = Disk(root)
    environment = {**os.environ, **Faults(root, journal, **faults).environment()}
    command = [sys.executable, "-c", PRELUDE + script, str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    disk.replay(journal)
    disk.check()
    return disk, done


def left(place: Path) -> dict[str, bytes]:
    root = place / "root"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("script", "strict"),
    [
        ("put('a', b'1'); sync()", {"a": b"1"}),
        ("put('a', b'1')", {}),
        ("put('a', b'1', sync=False); sync()", {"a": b""}),
        ("put('a', b'1'); sync(); put('a', b'22', sync=False)", {"a": b"1"}),
        ("put('a', b'1'); sync(); put('b', b'2'); os.rename(root / 'b', root / 'a')", {"a": b"1"}),
        ("put('a', b'1'); sync(); put('b', b'2'); os.rename(root / 'b', root / 'a'); sync()", {"a": b"2"}),
        ("put('a', b'1'); sync(); os.unlink(root / 'a')", {"a": b"1"}),
        ("put('a', b'1'); sync(); os.unlink(root / 'a'); sync()", {}),
        ("put('a', b'1'); os.link(root / 'a', root / 'b'); sync(); os.unlink(root / 'a')", {"a": b"1", "b": b"1"}),
        ("os.mkdir(root / 'd'); put('d/a', b'1'); sync('d')", {}),
        ("os.mkdir(root / 'd'); put('d/a', b'1'); sync('d'); sync()", {"d/a": b"1"}),
        ("put('a', b'123'); sync(); os.truncate(root / 'a', 1)", {"a": b"123"}),
        ("put('a', b'123'); sync(); put('a', b'4', os.O_WRONLY | os.O_APPEND); put('a', b'5', os.O_RDWR)", {"a": b"5234"}),
        ("put('a', b'1'); sync(); f = os.open(root / 'a', os.O_RDWR); os.pwrite(f, b'9', 3); os.fdatasync(f)",
         {"a": b"1\0\0009"}),
        ("put('a', b'1'); sync(); f = os.open(root / 'a', os.O_RDWR); os.posix_fallocate(f, 0, 3)", {"a": b"1"}),
    ],
)  # fmt: skip
def test_a_power_cut_leaves_what_was_synced(tmp_path: Path, script: str, strict: dict[str, bytes]) -> None:
    disk, done = run(tmp_path, script)
    assert done.returncode == 0, done.stderr
    disk.cut(Variant.NOTHING, 0)
    assert left(tmp_path) == strict


@pytest.mark.parametrize(
    ("variant", "possible"),
    [
        (Variant.PREFIX, lambda content: content == b"x" * len(content)),
        (
            Variant.SCATTERED,
            lambda content: all(set(content[n : n + 512]) in ({0}, {120}) for n in range(0, 2048, 512)),
        ),
    ],
)
def test_of_what_was_not_synced_a_prefix_or_any_sectors_may_be_left(
    tmp_path: Path, variant: Variant, possible: Callable[[bytes], bool]
) -> None:
    seen: set[bytes] = set()
    for seed in range(20):
        place = tmp_path / str(seed)
        place.mkdir()
        if seed == 0:
            disk, done = run(place, "put('a', b''); sync(); put('a', b'x' * 2048, sync=False)")
            assert done.returncode == 0, done.stderr
        root = tmp_path / "0"
        disk.cut(variant, seed)
        seen.add(left(root)["a"])
    assert len(seen) > 5
    assert all(possible(content.ljust(2048, b"\0") if variant is Variant.SCATTERED else content) for content in seen)


def test_the_process_dies_before_the_change_that_it_was_to_die_at(tmp_path: Path) -> None:
    _, done = run(tmp_path, "put('a', b'1'); put('b', b'2')", cut=5)  # create, write, sync, create, write
    assert done.returncode == -9
    assert left(tmp_path) == {"a": b"1", "b": b""}


def test_what_was_written_before_a_failed_sync_is_never_durable(tmp_path: Path) -> None:
    script = """
put('a', b'1'); sync()
f = os.open(root / 'a', os.O_RDWR)
os.write(f, b'23')
try: os.fsync(f)
except OSError as error: print(error.errno == errno.EIO)
os.fsync(f)
"""
    disk, done = run(tmp_path, script, failing_sync="root/a:2")
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert left(tmp_path) == {"a": b"23"}
    disk.cut(Variant.NOTHING, 0)
    assert left(tmp_path) == {"a": b"1"}


def test_a_full_disk_takes_half_a_write_and_then_none(tmp_path: Path) -> None:
    script = f"""
full = Path({str(tmp_path / "full")!r})
full.write_text('')
print(put('a', b'1234', os.O_WRONLY))
try: put('a', b'1234', os.O_WRONLY)
except OSError as error: print(error.errno == errno.ENOSPC)
full.unlink()
print(put('a', b'1234', os.O_WRONLY))
"""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").touch()
    _, done = run(tmp_path, script, full=tmp_path / "full")
    assert done.stdout == "2\nTrue\n4\n", done.stderr


def test_short_writes_are_short_and_told(tmp_path: Path) -> None:
    script = "print(sum(put(f'a{n}', b'12345678') < 8 for n in range(100)))"
    _, done = run(tmp_path, script, short=1)
    assert 10 < int(done.stdout) < 50
    assert sum(len(content) < 8 for content in left(tmp_path).values()) == int(done.stdout)


def test_a_change_that_went_past_the_shim_is_noticed(tmp_path: Path) -> None:
    disk, _ = run(tmp_path, "put('a', b'1')")
    (tmp_path / "root" / "a").write_bytes(b"2")
    with pytest.raises(AssertionError, match="missed a write to a"):
        disk.check()
