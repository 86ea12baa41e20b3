"""A disk that fails a sync, writes short, or is full: no answer counts on what it did not take."""

import asyncio
import random
from itertools import count
from pathlib import Path

import pytest

from affidavit.audit.v1 import audit_pb2
from tests.contract.audit_process import DEADLINE_S, AuditProcess, append_one, head, item
from tests.crash.acknowledged import CALLERS, Heard, call, check, check_retries
from tests.crash.faults.disk import Disk, Variant
from tests.crash.faults.preload import Faults

WAL, HEAD = ".log", "audit/head"


async def append_until_refused(stub, heard: Heard, name: str) -> audit_pb2.AppendResult:
    for number in range(100):
        request_id = f"{name}-{number}"
        heard.sent.add(request_id)
        result = await append_one(stub, item(request_id))
        if result.WhichOneof("outcome") == "error":
            return result
        heard.keep(request_id, result.receipt)
    raise AssertionError("no sync failed")


async def check_after_a_power_cut(home: Path, disk: Disk, heard: Heard) -> None:
    disk.check()
    disk.cut(Variant.NOTHING, 0)
    audit = AuditProcess(home)
    try:
        await check(audit, heard)
        await check_retries(audit, heard)
    finally:
        audit.kill()


@pytest.mark.parametrize("file", [WAL, pytest.param(HEAD, marks=pytest.mark.slow)])
async def test_after_a_failed_sync_nothing_is_appended_until_the_log_was_opened_anew(tmp_path: Path, file: str) -> None:
    home, journal = tmp_path / "home", tmp_path / "journal"
    home.mkdir()
    disk, heard = Disk(home), Heard()
    faults = Faults(home, journal, failing_sync=f"{file}:12")
    flags = ("--canary-interval-s", "3600")  # it is the canary that opens anew
    audit = AuditProcess(home, *flags, environment=faults.environment())
    try:
        async with audit.stub() as stub:
            refused = await append_until_refused(stub, heard, "a")
            assert refused.error.reason == "LOG_UNAVAILABLE"
            assert len(heard.receipts) >= 3
            size = (await head(stub)).size
            for number in range(20):  # the disk would take these: a second fsync succeeds without the lost pages
                heard.sent.add(f"b-{number}")
                again = await append_one(stub, item(f"b-{number}"))
                assert again.error.reason == "LOG_UNAVAILABLE"
            assert (await head(stub)).size == size == len(heard.receipts)
    finally:
        audit.kill()
    disk.replay(journal)
    assert disk.counts["x"] == 1
    await check_after_a_power_cut(home, disk, heard)


async def persist(audit: AuditProcess, stub, name: str, heard: Heard) -> None:
    """Call again after every refusal, until the process is gone."""
    for number in count():
        await call(stub, f"{name}-{number}", heard, asyncio.Event())
        if audit.process.poll() is not None:
            return
        await asyncio.sleep(0.05)


async def one_failed_sync_and_a_power_cut(place: Path, sync: int) -> None:
    """The `sync`-th sync of any file fails, callers come again, the log opens anew by itself; then the power is cut."""
    home, journal = place / "home", place / "journal"
    home.mkdir()
    disk, heard = Disk(home), Heard()
    faults = Faults(home, journal, cut=400, failing_sync=f"home/:{sync}")
    flags = ("--canary-interval-s", "0.2", "--publish-interval-s", "0.2")
    audit = AuditProcess(home, *flags, environment=faults.environment())
    try:
        async with audit.stub() as stub:
            await asyncio.gather(*(persist(audit, stub, str(n), heard) for n in range(CALLERS)))
    except AssertionError:
        if audit.process.poll() is None:
            raise
    finally:
        code = audit.process.wait(DEADLINE_S)
        audit.kill()
    assert code == -9 or (code == 3 and not heard.receipts), f"{code}: {audit.stderr()[-2000:]}"
    disk.replay(journal)
    assert disk.counts["x"] == 1
    await check_after_a_power_cut(home, disk, heard)


@pytest.mark.slow
@pytest.mark.parametrize("sync", range(1, 61))
async def test_any_one_failed_sync_loses_nothing_that_was_acknowledged(tmp_path: Path, sync: int) -> None:
    await one_failed_sync_and_a_power_cut(tmp_path, sync)


@pytest.mark.slow
async def test_short_writes_are_finished_and_nothing_is_lost_by_them(tmp_path: Path) -> None:
    home, journal = tmp_path / "home", tmp_path / "journal"
    home.mkdir()
    disk, heard = Disk(home), Heard()
    audit = AuditProcess(
        home, environment=Faults(home, journal, cut=300, short=random.randrange(1 << 30)).environment()
    )
    try:
        async with audit.stub() as stub:
            await asyncio.gather(*(call(stub, str(n), heard, asyncio.Event()) for n in range(CALLERS)))
        assert audit.process.wait(DEADLINE_S) == -9, audit.stderr()
    finally:
        audit.kill()
    assert heard.receipts
    disk.replay(journal)
    await check_after_a_power_cut(home, disk, heard)


@pytest.mark.parametrize(
    "full",
    ["audit/head", *(pytest.param(text, marks=pytest.mark.slow) for text in ("audit/store", ""))],
    ids=["the head's", "the store's", "all of it"],
)
async def test_a_disk_that_is_full_refuses_by_name_keeps_reads_and_recovers(tmp_path: Path, full: str) -> None:
    """The head may live on a filesystem of its own: either may be the full one."""
    home, journal, control = tmp_path / "home", tmp_path / "journal", tmp_path / "full"
    home.mkdir()
    heard = Heard()
    flags = ("--canary-interval-s", "0.2")
    audit = AuditProcess(home, *flags, environment=Faults(home, journal, full=control).environment())
    try:
        async with audit.stub() as stub:
            for number in range(5):
                heard.sent.add(f"before-{number}")
                heard.keep(f"before-{number}", (await append_one(stub, item(f"before-{number}"))).receipt)
            control.write_text(full)
            refused = await append_until_refused(stub, heard, "full")
            assert refused.error.reason == "STORAGE_FULL", refused.error.message
            acknowledged = len(heard.receipts)
            for request_id, receipt in heard.receipts.items():  # reads go on
                record = (await stub.GetRecord(audit_pb2.GetRecordRequest(index=receipt.index))).receipt
                audit.verify(record, request_id)
            for number in range(5):
                heard.sent.add(f"still-{number}")
                again = await append_one(stub, item(f"still-{number}"))
                assert again.error.reason in ("STORAGE_FULL", "LOG_UNAVAILABLE"), again.error.message
            assert (await head(stub)).size == acknowledged
            control.unlink()
            async with asyncio.timeout(DEADLINE_S):
                while (await append_one(stub, item("still-0"))).WhichOneof("outcome") == "error":
                    await asyncio.sleep(0.05)
        await check(audit, heard)
        await check_retries(audit, heard)
    finally:
        audit.kill()
