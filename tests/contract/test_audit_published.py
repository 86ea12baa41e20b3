"""The published log: tiles that anyone's reader verifies, behind the commits, derived from the store."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from affidavit.libs.evidence.note import TreeHead, Verifier, split_note
from affidavit.libs.evidence.tiles import TileReader, folder_tiles
from tests.contract.audit_process import AuditProcess, append, append_one, head, item

pytestmark = pytest.mark.slow  # each starts services and commands anew


@pytest.fixture
def started() -> Iterator[list[AuditProcess]]:
    processes: list[AuditProcess] = []
    yield processes
    for process in processes:
        process.kill()


def start(started: list[AuditProcess], home: Path, *flags: str) -> AuditProcess:
    started.append(AuditProcess(home, *flags))
    return started[-1]


def read(audit: AuditProcess) -> tuple[TreeHead, list[bytes]]:
    """The published head, its signature verified, and every leaf under it."""
    folder = audit.home / "audit" / "tiles"
    origin = TreeHead.parse(split_note((folder / "checkpoint").read_bytes())[0]).origin
    reader = TileReader(folder_tiles(folder))
    published = reader.head([Verifier(origin, audit.key)])
    return published, list(reader.leaves(published))


def items(name: str, count: int) -> list:
    return [item(f"{name}-{n}", sequence=n) for n in range(count)]


async def fill(audit: AuditProcess, name: str, count: int) -> dict[int, bytes]:
    async with audit.stub() as stub:
        results = await append(stub, [items(name, count)])
    return {result.receipt.index: result.receipt.leaf for result in results}


async def test_what_was_acknowledged_is_published_when_the_service_stops_and_grows_over_restarts(
    started, tmp_path
) -> None:
    leaves: dict[int, bytes] = {}
    for run, count in enumerate((0, 200, 56, 1, 700)):  # empty, partial, exactly full, one more, several tiles
        audit = start(started, tmp_path / "home")
        if count:
            leaves |= await fill(audit, f"run-{run}", count)
        else:
            async with audit.stub():
                pass
        assert audit.stop() == 0
        published, read_leaves = read(audit)
        assert published.size == len(leaves)
        assert read_leaves == [leaves[index] for index in range(len(leaves))]
    entries = audit.home / "audit" / "tiles" / "tile" / "entries"
    assert sorted(path.name for path in entries.iterdir()) == ["000", "001", "002", "003.p"]


async def test_whatever_checkpoint_a_reader_meets_all_that_it_covers_is_there(started, tmp_path) -> None:
    audit = start(started, tmp_path / "home", "--publish-interval-s", "0.001")
    sizes: set[int] = set()
    async with audit.stub() as stub:
        for n in range(60):
            await append(stub, [items(f"r-{n}", 17)])
            folder = audit.home / "audit" / "tiles"
            snapshot = (folder / "checkpoint").exists()
            if snapshot:
                sizes.add((await asyncio.to_thread(read, audit))[0].size)
    assert len(sizes) > 3, "the reader never met a growing log"
    audit.kill()
    assert read(audit)[0].size >= max(sizes)


async def test_tiles_that_were_deleted_are_written_again_from_the_store(started, tmp_path) -> None:
    audit = start(started, tmp_path / "home")
    leaves = await fill(audit, "r", 600)
    assert audit.stop() == 0
    before = read(audit)
    tiles = audit.home / "audit" / "tiles"
    for lost in (tiles / "tile" / "0" / "001", tiles / "tile" / "entries" / "000", tiles / "tile" / "1", tiles):
        lost.unlink() if lost.is_file() else shutil.rmtree(lost)
        again = start(started, audit.home)
        async with again.stub():
            pass
        assert again.stop() == 0
        assert read(again) == before
    assert before[1] == [leaves[index] for index in range(600)]


async def test_a_log_that_was_rolled_back_behind_what_it_published_is_refused(started, tmp_path) -> None:
    audit = start(started, tmp_path / "home")
    await fill(audit, "early", 5)
    assert audit.stop() == 0
    shutil.copytree(audit.home / "audit", tmp_path / "copy")
    again = start(started, audit.home)
    await fill(again, "late", 5)
    assert again.stop() == 0
    for part in ("store", "head"):  # a whole, earlier, signed copy: only the tiles are newer
        shutil.rmtree(audit.home / "audit" / part)
        shutil.copytree(tmp_path / "copy" / part, audit.home / "audit" / part)
    code, line = start(started, audit.home).ended()
    assert code == 4
    assert "covers 10 records, the log has 5" in line
    assert "earlier copy" in line
    shutil.rmtree(audit.home / "audit" / "tiles")
    shutil.copytree(tmp_path / "copy" / "tiles", audit.home / "audit" / "tiles")
    whole = start(started, audit.home)  # the copy as a whole is a log: only those outside can tell
    async with whole.stub() as stub:
        assert (await head(stub)).size == 5


async def test_another_past_than_was_published_is_refused(started, tmp_path) -> None:
    audit = start(started, tmp_path / "home")
    await fill(audit, "one", 5)
    assert audit.stop() == 0
    shutil.copytree(audit.home, tmp_path / "fork")
    for home, name in ((audit.home, "a"), (tmp_path / "fork", "b")):
        grown = start(started, home)
        await fill(grown, name, 5)
        assert grown.stop() == 0
    shutil.rmtree(audit.home / "audit" / "tiles")
    shutil.copytree(tmp_path / "fork" / "audit" / "tiles", audit.home / "audit" / "tiles")
    code, line = start(started, audit.home).ended()
    assert code == 4
    assert "another past" in line


async def test_a_folder_that_takes_no_tiles_stops_no_append(started, tmp_path) -> None:
    audit = start(started, tmp_path / "home", "--publish-interval-s", "3600")  # the next pass is the stop's
    tiles = audit.home / "audit" / "tiles"
    async with audit.stub() as stub:
        while not (tiles / "checkpoint").exists():
            await head(stub)
        shutil.rmtree(tiles)
        tiles.write_text("no folder")
        audit.verify((await append_one(stub, item("r-1"))).receipt, "r-1")
    assert audit.stop() == 0
    assert "publishing_failed" in audit.stderr()
    tiles.unlink()
    again = start(started, audit.home)
    async with again.stub():
        pass
    assert again.stop() == 0
    assert read(again)[0].size == 1
