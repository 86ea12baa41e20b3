"""The archive as an operator has it: settings, the schedule, the commands, and a log of more than 10,000 records."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import grpc
import pytest

from affidavit.audit.v1 import audit_pb2
from affidavit.libs.evidence.receipt import verify_receipt
from affidavit.libs.settings import SettingsError, load
from affidavit.services.audit.settings import AuditSettings
from tests.contract.audit_process import AuditProcess, append, append_one, head, item
from tests.contract.s3_server import CREDENTIALS, S3Server, serving

COUNT = 10_600  # the newest 10,000 are never released
SEGMENT = 600


@pytest.fixture(scope="module")
def moto(request, tmp_path_factory):
    for server in serving("moto", tmp_path_factory.mktemp("moto")):
        request.config.pluginmanager.get_plugin("terminalreporter").write_line(f" S3 API server: {server.name}")
        yield server


@pytest.fixture(autouse=True)
def credentials(monkeypatch, tmp_path) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def command(home: Path, *arguments: str, address: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AFFIDAVIT_")}
    env |= {"AFFIDAVIT_HOME": str(home), "AFFIDAVIT_RUNTIME": str(home.parent / "run"), **settings}
    if address:
        env["AFFIDAVIT_AUDIT_ADDRESS"] = address
    run = [sys.executable, "-m", "affidavit.tools.cli", "audit", *arguments]
    return subprocess.run(run, env=env, capture_output=True, text=True, timeout=120)


async def started(home: Path, *flags: str) -> AuditProcess:
    audit = AuditProcess(home, *flags)
    async with audit.stub() as stub:
        await head(stub)
    return audit


def refused(home: Path, *flags: str) -> str:
    code, line = AuditProcess(home, *flags).ended()
    assert code == 2, line
    return line


def test_records_are_kept_180_days_at_least() -> None:
    assert load(AuditSettings, "audit", ["--retention-days", "180"], {}).values.retention_days == 180
    with pytest.raises(SettingsError, match=r"retention_days \(--retention-days\): .*180 days at least, not 179"):
        load(AuditSettings, "audit", ["--retention-days", "179"], {})


@pytest.mark.slow
async def test_a_service_does_not_start_with_a_bucket_that_keeps_nothing(tmp_path, moto: S3Server) -> None:
    home, flags = tmp_path / "home", ["--archive-endpoint", moto.url, "--archive"]
    audit = await started(home, *flags, f"s3://{moto.bucket()}/evidence")
    assert audit.stop() == 0
    assert "has no Object Lock" in refused(home, *flags, f"s3://{moto.bucket(locked=False)}/evidence")
    assert "there is no bucket" in refused(home, *flags, "s3://never-made")
    assert "180 days at least, not 179" in refused(home, "--retention-days", "179")
    assert "neither a folder nor s3://" in refused(home, "--archive", "gs://bucket")
    absent = await started(home, "--archive-endpoint", "http://127.0.0.1:9", "--archive", "s3://somewhere")
    assert absent.stop() == 0  # one that does not answer is asked again later


@pytest.mark.slow
async def test_the_schedule_archives_and_the_commands_list_and_verify(tmp_path) -> None:
    home, archive = tmp_path / "home", tmp_path / "archive"
    flags = ["--archive", str(archive), "--archive-interval-s", "0.2", "--archive-segment-records", "10"]
    metrics = f"127.0.0.1:{free_port()}"
    audit = await started(home, *flags, "--metrics-address", metrics)
    async with audit.stub() as stub:
        await append(stub, [[item(f"r-{n}") for n in range(25)]])
        async with asyncio.timeout(60):
            while metric(metrics, "affidavit_audit_archived_leaves") < 25:
                await asyncio.sleep(0.1)
    assert metric(metrics, "affidavit_audit_unarchived_timestamp_seconds") == 0
    listed = await asyncio.to_thread(command, home, "archive", "ls", "--archive", str(archive), "--json")
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert rows[0]["first"] == 0
    assert rows[-1]["last"] == 24
    assert all("keys/log.pub" in row["files"] for row in rows)
    running = await asyncio.to_thread(command, home, "archive", "verify", "--archive", str(archive), "--json")
    assert running.returncode == 0, running.stderr
    assert json.loads(running.stdout)["records"] == 25
    assert audit.stop() == 0
    entries = next(archive.rglob("entries"))
    entries.chmod(0o644)
    entries.write_bytes(entries.read_bytes().replace(b"r-1", b"r-2", 1))
    found = await asyncio.to_thread(command, home, "archive", "verify", "--archive", str(archive))
    assert found.returncode == 4
    assert "DAMAGED" in found.stdout
    shutil.rmtree(archive)
    gone = await asyncio.to_thread(command, home, "archive", "verify", "--archive", str(archive))
    assert gone.returncode == 4, gone.stdout
    assert "is missing; it was read back" in gone.stdout


def metric(address: str, name: str) -> float:
    page = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
    return float(next(line.split()[1] for line in page.splitlines() if line.startswith(f"{name} ")))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def own(tmp_path):
    """A server that the test may stop."""
    yield from serving("moto", tmp_path / "server")


@pytest.mark.slow
async def test_a_long_log_is_released_and_goes_on_answering_also_when_its_archive_is_away(tmp_path, own) -> None:
    home, place, samples = tmp_path / "home", f"s3://{own.bucket()}/log", (0, 1, 599, 600, COUNT - 1)
    settings = {
        "AFFIDAVIT_AUDIT_ARCHIVE": place,
        "AFFIDAVIT_AUDIT_ARCHIVE_ENDPOINT": own.url,
        "AFFIDAVIT_AUDIT_ARCHIVE_SEGMENT_RECORDS": str(SEGMENT),
    }
    flags = ["--archive", place, "--archive-endpoint", own.url, "--archive-segment-records", str(SEGMENT)]
    audit = await started(home, *flags)
    async with audit.stub() as stub:
        for first in range(0, COUNT, 1000):
            await append(stub, [[item(f"r-{n}") for n in range(first, min(first + 1000, COUNT))]])
        before = [await receipt(stub, index) for index in samples]

    async def said(*arguments: str) -> dict:
        done = await asyncio.to_thread(lambda: command(home, *arguments, address=audit.address, **settings))
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return json.loads(done.stdout)

    assert await said("archive", "release", "--keep-local-days", "0", "--json") == {
        "released": 0
    }  # nothing is archived
    assert await said("archive", "run", "--json") == {"archived": COUNT}
    assert await said("archive", "release", "--keep-local-days", "1", "--json") == {"released": 0}
    assert await said("archive", "release", "--keep-local-days", "0", "--json") == {"released": 600}
    assert (await said("archive", "verify", "--json"))["records"] == COUNT
    assert audit.stop() == 0
    audit = await started(home, *flags)  # the start's check of the newest records finds them
    async with audit.stub() as stub:
        assert [await receipt(stub, index) for index in samples] == before
        request = audit_pb2.ListRecordsRequest(last_index=700)
        listed = [record.index async for answer in stub.ListRecords(request) for record in answer.records]
        assert listed == list(range(701))
        again = await append(stub, [[item("r-5"), item("r-10001"), item("r-5", content=b"other")]])
        outcomes = {result.receipt.index if result.HasField("receipt") else result.error.reason for result in again}
        assert outcomes == {5, 10_001, "IDEMPOTENCY_CONFLICT"}  # the stored receipt again, from wherever it is
        assert sum(result.repeated_key for result in again) == 2
    assert audit.stop() == 0
    shutil.rmtree(home / "audit" / "tiles")
    audit = await started(home, *flags)  # tiles again, from the archive where need be
    assert audit.stop() == 0
    assert (await said("fsck", "--json"))["released"] == 600
    audit = await started(home, *flags)
    own.stop()
    async with audit.stub() as stub:
        with pytest.raises(grpc.aio.AioRpcError, match="record 7 is in the archive alone") as caught:
            await receipt(stub, 7)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        new = await append_one(stub, item("after"))
        assert new.receipt.index == COUNT
        assert verify_receipt(new.receipt, audit.key).leaf.request_id == "after"
        assert (await receipt(stub, 600)).leaf == before[3].leaf
        assert (await stub.GetInclusionProof(audit_pb2.GetInclusionProofRequest(leaf_index=7))).inclusion_proof.hashes
        again = await append_one(stub, item("r-7"))
        assert again.error.reason == "SERVICE_UNAVAILABLE"
    assert audit.stop() == 0


async def receipt(stub, index: int):
    return (await stub.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
