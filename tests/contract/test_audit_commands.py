"""`affidavit audit key` and `affidavit audit forget`, on a log that runs and on one that the command opens for itself."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from affidavit.libs.evidence.note import Verifier
from tests.contract.audit_process import AuditProcess, append, head, item


@pytest.fixture
def audit(tmp_path):
    process = AuditProcess(tmp_path / "home")
    yield process
    process.stop()


def environment(audit: AuditProcess, runtime: Path, *, running: bool) -> dict[str, str]:
    rest = {name: value for name, value in os.environ.items() if not name.startswith("AFFIDAVIT_")}
    address = {"AFFIDAVIT_AUDIT_ADDRESS": audit.address} if running else {}
    return rest | address | {"AFFIDAVIT_HOME": str(audit.home), "AFFIDAVIT_RUNTIME": str(runtime)}


def command(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "affidavit.tools.cli", "audit", *arguments]
    return subprocess.run(run, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("running", [True, False])
async def test_the_key_is_shown_as_witnesses_and_auditors_take_it(audit, tmp_path, running) -> None:
    async with audit.stub() as stub:
        origin = (await head(stub)).origin
    if not running:
        assert audit.stop() == 0
    env = environment(audit, tmp_path / "run", running=running)
    expected = Verifier(origin, audit.key).text()
    file = audit.home / "keys" / "log.pub"
    shown = await asyncio.to_thread(command, env, "key", "show", "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == {
        "origin": origin,
        "verifier": expected,
        "pem": file.read_text(),
        "file": str(file),
    }
    if running:
        assert (await asyncio.to_thread(command, env, "key", "show", "--verifier")).stdout == f"{expected}\n"
        assert (await asyncio.to_thread(command, env, "key", "show", "--pem")).stdout == file.read_text()
        text = (await asyncio.to_thread(command, env, "key", "show")).stdout
        assert text == f"log       {origin}\nverifier  {expected}\nPEM       {file}\n"
        elsewhere = env | {"AFFIDAVIT_HOME": str(tmp_path / "other")}
        other = await asyncio.to_thread(command, elsewhere, "key", "show", "--json")
        assert json.loads(other.stdout)["file"] is None
        assert (await asyncio.to_thread(command, env, "key", "show", "--pem", "--json")).returncode == 2


@pytest.mark.parametrize("running", [True, False])
async def test_a_request_is_forgotten_and_an_unknown_one_is_an_error(audit, tmp_path, running) -> None:
    async with audit.stub() as stub:
        assert len(await append(stub, [[item("r-1", "opened"), item("r-2"), item("r-1", "closed")]])) == 3
    if not running:
        assert audit.stop() == 0
    env = environment(audit, tmp_path / "run", running=running)
    unknown = await asyncio.to_thread(command, env, "forget", "r-3", "--yes")
    assert (unknown.returncode, "NOT_FOUND" in unknown.stderr) == (1, True), unknown.stderr
    done = await asyncio.to_thread(command, env, "forget", "r-1", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"indices": [0, 2], "results_erased": 0}
