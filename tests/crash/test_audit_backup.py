"""`affidavit audit backup` of a running log, and the restore drill: what was lost comes back whole, or is refused."""

import asyncio
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from affidavit.audit.v1 import audit_pb2
from affidavit.services.audit.backup import back_up
from affidavit.services.audit.fsck import check_log
from affidavit.services.audit.offline import silent
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.store import Store
from tests.contract.audit_process import AuditProcess, append, append_one, head, item

pytestmark = pytest.mark.slow  # each starts services and commands anew

COUNT = 600


def run(name: str, *arguments: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "affidavit.tools.cli", "audit", name, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def items(first: int, last: int) -> list[list[audit_pb2.AppendItem]]:
    return [[item(f"r-{n}")] for n in range(first, last)]


@pytest.fixture(scope="module")
def drill(tmp_path_factory) -> Path:
    """`home`, a log of COUNT + 10 records; `early`, its backup made at COUNT; `late`, made at its end; both made while
    it ran, by the command."""
    root = tmp_path_factory.mktemp("drill")
    audit = AuditProcess(root / "home", "--publish-interval-s", "0.05")

    async def fill() -> None:
        async with audit.stub() as stub:
            await append(stub, items(0, COUNT))
            await stub.ForgetRecords(audit_pb2.ForgetRecordsRequest(tenant="default", request_id="r-3"))
            early = await asyncio.to_thread(run, "backup", root / "early", "--home", audit.home)
            assert early.returncode == 0, early.stderr
            assert f"{COUNT} records in {root / 'early'}, without the log's private key" in early.stdout
            await append(stub, items(COUNT, COUNT + 10))
            timestamps = audit.home / "audit" / "side" / "timestamps"
            timestamps.mkdir(parents=True)
            (timestamps / "600.tsr").write_bytes(b"token")
            late = await asyncio.to_thread(run, "backup", root / "late", "--with-keys", "--home", audit.home)
            assert late.returncode == 0, late.stderr

    asyncio.run(fill())
    assert audit.stop() == 0
    return root


def test_a_backup_is_a_whole_log_and_has_the_private_key_only_when_asked(drill) -> None:
    for name, size, keys in (("early", COUNT, ["log.pub"]), ("late", COUNT + 10, ["log.key", "log.pub"])):
        folder = drill / name
        report = check_log(LogFolders.below(folder), folder / "audit" / "tiles", silent, private_key=name == "late")
        assert report.findings == []
        assert (report.size, report.unsigned, report.erased) == (size, 0, 1)
        assert sorted(path.name for path in (folder / "keys").iterdir()) == keys
    assert stat.S_IMODE((drill / "late" / "keys" / "log.key").stat().st_mode) == 0o600


async def test_after_the_drill_every_record_is_there_keys_repeat_and_the_log_goes_on(drill, tmp_path) -> None:
    home = tmp_path / "home"
    done = run("restore", drill / "late", "--home", home)
    assert done.returncode == 0, done.stderr
    assert f"{COUNT + 10} records restored" in done.stdout
    assert (home / "audit" / "side" / "timestamps" / "600.tsr").read_bytes() == b"token"
    audit = AuditProcess(home)
    try:
        async with audit.stub() as stub:
            assert (await head(stub)).size == COUNT + 10
            for index in (0, 4, COUNT - 1, COUNT + 9):
                receipt = (await stub.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
                audit.verify(receipt, f"r-{index}")
            forgotten = (await stub.GetRecord(audit_pb2.GetRecordRequest(index=3))).receipt
            assert forgotten.salt == b""
            assert (await append_one(stub, item("r-9"))).repeated_key
            new = await append_one(stub, item("after"))
            assert (new.receipt.index, new.repeated_key) == (COUNT + 10, False)
    finally:
        audit.kill()


def test_a_restore_without_the_private_key_says_where_to_put_it(drill, tmp_path) -> None:
    done = run("restore", drill / "early", "--home", tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert f"once its private key is in {tmp_path / 'home' / 'keys' / 'log.key'}" in done.stdout


def test_a_restore_overwrites_nothing(drill, tmp_path) -> None:
    home = shutil.copytree(drill / "home", tmp_path / "home")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    done = run("restore", drill / "late", "--home", home)
    assert done.returncode == 3
    assert "nothing is overwritten" in done.stderr
    shutil.rmtree(home / "audit" / "store")
    (home / "keys" / "log.key").write_bytes(b"another")
    done = run("restore", drill / "late", "--home", home)
    assert done.returncode == 3
    assert "log.key is there and is not the backup's" in done.stderr
    (home / "keys" / "log.key").write_bytes(before[home / "keys" / "log.key"])
    kept = {path: data for path, data in before.items() if "store" not in path.parts}
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == kept


def test_a_backup_older_than_what_was_published_is_refused(drill, tmp_path) -> None:
    home = tmp_path / "home"
    shutil.copytree(drill / "home" / "audit" / "tiles", home / "audit" / "tiles")
    done = run("restore", drill / "early", "--home", home)
    assert done.returncode == 4
    assert f"records {COUNT} to {COUNT + 9} are lost" in done.stderr
    assert not (home / "audit" / "store").exists()
    assert run("restore", drill / "late", "--home", home).returncode == 0


def test_a_damaged_backup_is_refused_and_nothing_is_written(drill, tmp_path) -> None:
    damaged = shutil.copytree(drill / "late", tmp_path / "damaged")
    store = Store(damaged / "audit" / "store")
    store.put("leaf", [((7).to_bytes(8, "big"), b"{}")])
    store.close()
    done = run("restore", damaged, "--home", tmp_path / "home")
    assert done.returncode == 4
    assert "record 7: its bytes are not what was signed" in done.stderr
    assert not (tmp_path / "home").exists()


def test_a_log_that_is_not_what_was_signed_gives_no_backup(drill, tmp_path) -> None:
    home = shutil.copytree(drill / "home", tmp_path / "home")
    store = Store(home / "audit" / "store")
    store.put("leaf", [((7).to_bytes(8, "big"), b"{}")])
    store.close()
    done = run("backup", tmp_path / "copy", "--home", home)
    assert done.returncode == 4
    assert "not those that the head signed" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_a_backup_needs_a_new_folder(drill) -> None:
    done = run("backup", drill / "early", "--home", drill / "home")
    assert done.returncode == 3
    assert "is there already" in done.stderr


async def test_backups_made_while_records_arrive_are_whole_each_and_end_at_a_signed_head(tmp_path) -> None:
    audit = AuditProcess(tmp_path / "home")
    sizes: list[int] = []
    try:
        async with audit.stub() as stub:
            await append(stub, items(0, 50))
            stop = asyncio.Event()

            async def load() -> int:
                n = 50
                while not stop.is_set():
                    await append(stub, [[item(f"r-{i}", sequence=i - n) for i in range(n, n + 20)]])
                    request = audit_pb2.ForgetRecordsRequest(tenant="default", request_id=f"r-{n}")
                    await stub.ForgetRecords(request)  # flushes and compacts: tables come and go under the backup
                    n += 20
                return n

            task = asyncio.create_task(load())
            for number in range(5):
                acknowledged = (await head(stub)).size
                copy = tmp_path / f"copy-{number}"
                made = await asyncio.to_thread(back_up, LogFolders.below(audit.home), copy, silent, with_keys=True)
                report = await asyncio.to_thread(check_log, LogFolders.below(copy), copy / "none", silent)
                assert report.findings == []
                assert report.size == made.size >= acknowledged
                sizes.append(made.size)
            stop.set()
            assert await task > sizes[-1] - 20
            assert len(set(sizes)) > 1, "no record arrived between the backups"
            assert (await append_one(stub, item("after"))).receipt.index >= sizes[-1]
    finally:
        audit.kill()
