"""`affidavit audit repair`: the store again from the published tiles, under the signed root or not at all."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from affidavit.audit.v1 import audit_pb2
from affidavit.services.audit.fsck import check_log
from affidavit.services.audit.offline import silent
from affidavit.services.audit.opening import LogFolders
from tests.contract.audit_process import AuditProcess, append, append_one, head, item

pytestmark = pytest.mark.slow  # each starts services and commands anew

COUNT = 600


def repair(home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "affidavit.tools.cli", "audit", "repair", "--home", str(home)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """`home`, a stopped log of COUNT records; `early`, its copy from when it had 500."""
    root = tmp_path_factory.mktemp("log")

    async def fill(first: int, last: int) -> None:
        audit = AuditProcess(root / "home")
        async with audit.stub() as stub:
            await append(stub, [[item(f"r-{n}")] for n in range(first, last)])
        assert audit.stop() == 0

    asyncio.run(fill(0, 500))
    shutil.copytree(root / "home", root / "early")
    asyncio.run(fill(500, COUNT))
    return root


@pytest.fixture
def home(filled, tmp_path) -> Path:
    """A copy of the log, its store gone."""
    home = shutil.copytree(filled / "home", tmp_path / "home")
    shutil.rmtree(home / "audit" / "store")
    return home


async def test_a_repaired_log_has_every_record_by_index_and_request_and_goes_on(home) -> None:
    done = repair(home)
    assert done.returncode == 0, done.stderr
    assert f"{COUNT} records" in done.stdout
    assert "salts (all count as erased) and idempotency keys" in done.stdout
    report = check_log(LogFolders.below(home), home / "audit" / "tiles", silent)
    assert (report.findings, report.size, report.erased) == ([], COUNT, COUNT)
    audit = AuditProcess(home)
    try:
        async with audit.stub() as stub:
            assert (await head(stub)).size == COUNT
            for index in (0, 255, COUNT - 1):
                receipt = (await stub.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
                assert audit.verify(receipt).leaf.request_id == f"r-{index}"
            request = audit_pb2.ListRecordsRequest(tenant="default", request_id="r-7")
            listed = [record.index async for answer in stub.ListRecords(request) for record in answer.records]
            assert listed == [7]
            again = await append_one(stub, item("r-7"))  # what the loss costs: its key is not known any more
            assert (again.receipt.index, again.repeated_key) == (COUNT, False)
    finally:
        audit.kill()


def test_without_a_head_the_tiles_checkpoint_is_taken_and_it_is_said(home) -> None:
    shutil.rmtree(home / "audit" / "head")
    done = repair(home)
    assert done.returncode == 0, done.stderr
    assert "no signed head was here" in done.stdout
    assert check_log(LogFolders.below(home), home / "audit" / "tiles", silent).findings == []


def refused(home: Path, code: int) -> str:
    done = repair(home)
    assert done.returncode == code, done.stdout
    assert sorted(path.name for path in (home / "audit").glob("store*")) == []
    return done.stderr


def test_tiles_that_end_before_the_head_are_refused(home, filled) -> None:
    shutil.rmtree(home / "audit" / "tiles")
    shutil.copytree(filled / "early" / "audit" / "tiles", home / "audit" / "tiles")
    assert f"records 500 to {COUNT - 1} are not there" in refused(home, 4)


@pytest.mark.parametrize("name", ["tile/entries/001", "tile/0/001", "tile/1/000.p/2"])
@pytest.mark.parametrize("lost", [True, False], ids=["missing", "changed"])
def test_tiles_that_are_not_what_was_signed_are_refused(home, name: str, lost: bool) -> None:
    path = home / "audit" / "tiles" / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink() if lost else path.write_bytes(data)
    assert "the tiles do not repair this log" in refused(home, 4)


def test_without_tiles_there_is_nothing_to_repair_from(home) -> None:
    shutil.rmtree(home / "audit" / "tiles")
    assert "to repair from" in refused(home, 3)


def test_a_store_that_is_there_is_left_alone(filled) -> None:
    done = repair(filled / "home")
    assert done.returncode == 3
    assert "move it away first" in done.stderr
