"""A log that lost or changed anything does not start, says what is missing, and is left as it was found."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from affidavit.audit.v1 import audit_pb2
from affidavit.libs.errors import from_rpc_error
from affidavit.services.audit.head import SLOT_BYTES, HeadFile
from tests.contract.audit_process import AuditProcess, append, append_one, head, item

COUNT = 300


async def fill(home: Path, first: int, last: int) -> AuditProcess:
    """A log with records `first` to `last` appended, killed, so that its newest records are in the write-ahead log."""
    audit = AuditProcess(home)
    async with audit.stub() as stub:
        results = await append(stub, [[item(f"r-{n}")] for n in range(first, last - 1)])
        results.append(await append_one(stub, item(f"r-{last - 1}")))  # in a group commit of its own
        assert [r.receipt.index for r in results] == list(range(first, last))
    audit.kill()
    return audit


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A killed log of COUNT records; beside it `half`, its copy from when it had half of them, and `other`, another log."""
    root = tmp_path_factory.mktemp("logs")

    async def build() -> None:
        await fill(root / "home", 0, COUNT // 2)
        shutil.copytree(root / "home", root / "half")
        await fill(root / "home", COUNT // 2, COUNT)
        await fill(root / "other", 0, COUNT)

    asyncio.run(build())
    return root


@pytest.fixture
def home(filled, tmp_path) -> Path:
    for name in ("home", "half", "other"):
        shutil.copytree(filled / name, tmp_path / name)
    return tmp_path / "home"


def store(home: Path) -> Path:
    return home / "audit" / "store"


def checkpoint(home: Path) -> Path:
    return home / "audit" / "head" / "checkpoint"


def wal(home: Path) -> Path:
    return max(store(home).glob("*.log"), key=lambda path: path.stat().st_size)


def tables(home: Path) -> list[Path]:
    return sorted(store(home).glob("*.sst"))


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


async def starts(home: Path) -> int:
    """The size of the log of a service that starts; every record of it verifies."""
    audit = AuditProcess(home)
    try:
        async with audit.stub() as stub:
            return await read_all(audit, stub)
    finally:
        audit.kill()


async def read_all(audit: AuditProcess, stub) -> int:
    size = (await head(stub)).size
    for index in range(size):
        receipt = (await stub.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
        audit.verify(receipt, f"r-{index}")
    return size


def refuses(home: Path) -> str:
    code, line = AuditProcess(home).ended()
    assert code == 4, line
    assert line.startswith("LOG_DAMAGED: ")
    return line


async def test_an_undamaged_copy_starts_with_every_record(home) -> None:
    assert await starts(home) == COUNT


def test_a_deleted_write_ahead_log_is_named(home) -> None:
    wal(home).unlink()
    assert f"records {COUNT // 2} to {COUNT - 1} are missing" in refuses(home)


def test_a_truncated_store_is_named(home) -> None:
    cut(wal(home), wal(home).stat().st_size // 2)
    line = refuses(home)
    assert "the signed head covers 300" in line
    assert "to 299 are missing" in line


def test_a_bit_flipped_in_the_middle_is_named(home) -> None:
    flip(wal(home), wal(home).stat().st_size // 2)
    assert "to 299 are missing" in refuses(home)


def test_a_store_rolled_back_to_an_earlier_copy_is_named(home) -> None:
    shutil.rmtree(store(home))
    shutil.copytree(store(home.with_name("half")), store(home))
    assert f"records {COUNT // 2} to {COUNT - 1} are missing" in refuses(home)


def test_a_deleted_store_is_named(home) -> None:
    shutil.rmtree(store(home))
    assert f"records 0 to {COUNT - 1} are missing" in refuses(home)
    assert not store(home).exists()


def test_an_emptied_store_is_named(home) -> None:
    for path in store(home).iterdir():
        path.unlink()
    assert "does not open" in refuses(home)
    assert not [path for path in store(home).iterdir() if path.suffix in (".sst", ".log")]


async def test_a_store_rolled_back_and_grown_again_has_another_past(home) -> None:
    half = home.with_name("half")
    await fill_otherwise(half)
    shutil.rmtree(store(home))
    shutil.copytree(store(half), store(home))
    assert "another past" in refuses(home)


async def fill_otherwise(home: Path) -> None:
    audit = AuditProcess(home)
    async with audit.stub() as stub:
        await append(stub, [[item(f"forged-{n}")] for n in range(COUNT)])
    audit.kill()


@pytest.mark.parametrize(
    "change", [lambda t: t.unlink(), lambda t: flip(t, t.stat().st_size // 3)], ids=["gone", "flipped"]
)
def test_a_damaged_table_is_refused(home, change: Callable[[Path], None]) -> None:
    assert tables(home)
    for table in tables(home):
        change(table)
    refuses(home)


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST"])
def test_a_store_without_its_table_of_contents_is_refused(home, name: str) -> None:
    for path in store(home).glob(f"{name}*"):
        path.unlink()
    assert "does not open" in refuses(home)
    assert tables(home), "nothing of the store was cleared away"


def test_another_logs_head_is_refused(home) -> None:
    shutil.copy(checkpoint(home.with_name("other")), checkpoint(home))
    assert "is not this log's" in refuses(home)


def test_another_logs_head_and_key_are_refused(home) -> None:
    shutil.copy(checkpoint(home.with_name("other")), checkpoint(home))
    for name in ("log.key", "log.pub"):
        shutil.copy(home.with_name("other") / "keys" / name, home / "keys" / name)
    assert "the signed head is of log affidavit.local/" in refuses(home)


def test_another_logs_store_is_refused(home) -> None:
    shutil.rmtree(store(home))
    shutil.copytree(store(home.with_name("other")), store(home))
    assert "the signed head is of log affidavit.local/" in refuses(home)


def test_a_missing_head_is_refused(home) -> None:
    checkpoint(home).unlink()
    assert f"the store has {COUNT} records" in refuses(home)


@pytest.mark.parametrize("content", [b"", b"nonsense\n", bytes(200)])
def test_a_head_that_is_no_checkpoint_is_refused(home, content: bytes) -> None:
    checkpoint(home).write_bytes(content)
    assert "is not this log's" in refuses(home)


async def test_a_head_with_one_slot_torn_is_read_from_the_other(home) -> None:
    flip(checkpoint(home), 60)
    assert await starts(home) == COUNT
    flip(checkpoint(home), SLOT_BYTES + 60)
    assert await starts(home) == COUNT


def test_a_head_without_a_whole_slot_is_refused(home) -> None:
    for slot in (0, SLOT_BYTES):
        flip(checkpoint(home), slot + 60)
    assert "has no whole slot" in refuses(home)


def test_a_head_cut_short_is_refused(home) -> None:
    cut(checkpoint(home), 40)
    assert "has no whole slot" in refuses(home)


async def test_a_store_shorter_than_the_other_slot_is_named_also_when_one_is_torn(home) -> None:
    flip(checkpoint(home), 60)
    wal(home).unlink()
    assert f"records {COUNT // 2} to " in refuses(home)


def test_a_missing_key_is_refused_and_no_other_is_made(home) -> None:
    (home / "keys" / "log.key").unlink()
    assert "log.key is missing" in refuses(home)
    assert not (home / "keys" / "log.key").exists()


async def test_a_refused_log_is_left_as_it_was_and_starts_once_it_is_restored(home) -> None:
    kept = home.with_name("kept.log")
    lost = wal(home)
    shutil.move(lost, kept)
    refuses(home)
    refuses(home)
    shutil.move(kept, lost)
    assert await starts(home) == COUNT


@pytest.mark.parametrize("tail", [b"\x00" * 4096, b"garbage" * 100], ids=["zeroes", "garbage"])
async def test_a_torn_tail_after_the_last_acknowledged_record_starts(home, tail: bytes) -> None:
    with wal(home).open("ab") as file:
        file.write(tail)
    assert await starts(home) == COUNT


async def test_records_that_the_head_does_not_cover_yet_are_kept_and_signed(home) -> None:
    shutil.copy(checkpoint(home.with_name("half")), checkpoint(home))
    assert await starts(home) == COUNT
    note = HeadFile(checkpoint(home).parent).read()
    assert note is not None
    assert note.decode().splitlines()[1] == str(COUNT)


async def test_a_half_written_unacknowledged_record_is_dropped_and_its_key_is_free(home) -> None:
    shutil.copy(checkpoint(home.with_name("half")), checkpoint(home))
    cut(wal(home), wal(home).stat().st_size - 100)
    assert await starts(home) == COUNT - 1
    audit = AuditProcess(home)
    try:
        async with audit.stub() as stub:
            result = await append_one(stub, item(f"r-{COUNT - 1}"))
            assert not result.repeated_key
            audit.verify(result.receipt, f"r-{COUNT - 1}")
    finally:
        audit.kill()


async def test_a_record_changed_behind_the_services_back_is_never_served(home) -> None:
    """The start reads the newest records alone: reading any other must still tell."""
    audit = AuditProcess(home)
    try:
        async with audit.stub() as stub:
            assert (await head(stub)).size == COUNT
            for table in tables(home):
                with table.open("r+b") as file:
                    file.write(os.urandom(table.stat().st_size - 600))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await read_all(audit, stub)
            assert caught.value.code() == grpc.StatusCode.DATA_LOSS
            assert from_rpc_error(caught.value, "audit").reason == "LOG_DAMAGED"
    finally:
        audit.kill()
