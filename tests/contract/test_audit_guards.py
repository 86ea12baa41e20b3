"""The commands `affidavit audit witness`, `monitor` and `check` as a user runs them, each a process of its own."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.evidence.cosignature import WitnessKey
from affidavit.libs.evidence.note import Verifier
from affidavit.libs.evidence.receipt import write_receipt
from tests.contract.audit_process import AuditProcess, append, head, item


def run(*arguments: object, address: str = "") -> subprocess.CompletedProcess[str]:
    """`affidavit audit …`, on the log at `address` where the command takes it from the environment."""
    command = [sys.executable, "-m", "affidavit.tools.cli", "audit", *map(str, arguments)]
    environment = {**os.environ, **({"AFFIDAVIT_AUDIT_ADDRESS": address} if address else {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_monitor_ends_with_4_when_the_log_was_put_back(tmp_path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"

    async def grow(name: str, count: int) -> str:
        async with audit.stub() as stub:
            await append(stub, [[item(f"{name}-{number}") for number in range(count)]])
            return Verifier((await head(stub)).origin, audit.key).text()

    def look() -> subprocess.CompletedProcess[str]:
        state = tmp_path / "state"
        return run("monitor", "--address", audit.address, "--log", verifier, "--state", state, "--once")

    audit = AuditProcess(home)
    try:
        verifier = await grow("old", 5)
        seen = look()
        assert (seen.returncode, seen.stdout[:21]) == (0, "consistent: 5 records"), seen.stderr
        assert audit.stop() == 0
        shutil.copytree(home, copy)
        audit = AuditProcess(home)
        await grow("true", 3)
        seen = look()
        assert (seen.returncode, seen.stdout[:21]) == (0, "consistent: 8 records"), seen.stderr
        assert audit.stop() == 0
        audit = AuditProcess(copy)
        await grow("false", 4)
        alarm = look()
        assert (alarm.returncode, "does not continue" in alarm.stderr) == (4, True), alarm.stderr
    finally:
        audit.stop()


@pytest.mark.parametrize(
    ("grown", "alarm"),
    [
        pytest.param(
            0,
            "it had 8 records when it acknowledged record 7, and has 5: 3 are gone",
            id="as it was",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            2,
            "it had 8 records when it acknowledged record 7, and has 7: 1 are gone",
            id="shorter",
            marks=pytest.mark.slow,
        ),
        pytest.param(3, "the log of 8 records does not continue the one of 8", id="as long", marks=pytest.mark.slow),
        pytest.param(9, "the log of 14 records does not continue the one of 8", id="longer"),
    ],
)
async def test_an_old_receipt_tells_that_the_log_was_put_back(tmp_path, grown: int, alarm: str) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    old, new = tmp_path / "old.receipt.json", tmp_path / "new.receipt.json"

    async def grow(name: str, count: int, keep: Path | None = None) -> None:
        async with audit.stub() as stub:
            messages = [[item(f"{name}-{number}")] for number in range(count)]
            results = await append(stub, messages) if count else []
            if keep:
                write_receipt(keep, results[-1].receipt)
            assert audit.process.poll() is None, "the service itself cannot know"

    def check(*receipts: Path) -> subprocess.CompletedProcess[str]:
        return run("check", *receipts, "--log-key", home / "keys" / "log.pub", address=audit.address)

    audit = AuditProcess(home)
    try:
        await grow("old", 5, old)
        assert audit.stop() == 0
        shutil.copytree(home, copy)
        audit = AuditProcess(home)
        await grow("true", 3, new)
        await grow("more", 1)
        whole = check(old, new)
        assert whole.returncode == 0, whole.stderr
        assert f"{new}: record 7 is in the log of 9 records, which continues the receipt's" in whole.stdout
        assert audit.stop() == 0
        audit = AuditProcess(copy)
        await grow("false", grown)
        assert check(old).returncode == 0, "the copy is whole as far as it goes"
        found = check(old, new)
        assert (found.returncode, found.stdout) == (4, "")
        assert alarm in found.stderr
    finally:
        audit.stop()


@pytest.mark.slow
async def test_a_receipt_is_held_against_its_own_log_alone(tmp_path) -> None:
    receipt = tmp_path / "a.receipt.json"
    logs = [AuditProcess(tmp_path / name) for name in ("home", "other")]
    try:
        for audit in logs:
            async with audit.stub() as stub:
                (result,) = await append(stub, [[item("a")]])
                if audit is logs[0]:
                    write_receipt(receipt, result.receipt)
        key = logs[0].home / "keys" / "log.pub"
        assert run("check", receipt, "--log-key", key, address=logs[0].address).returncode == 0
        other = run("check", receipt, "--log-key", key, address=logs[1].address)
        assert (other.returncode, "not signed by a key of the receipt" in other.stderr) == (4, True), other.stderr
        receipt.write_text(receipt.read_text().replace('"treeSize": "1"', '"treeSize": "2"'))
        assert run("check", receipt, "--log-key", key, address=logs[0].address).returncode == 4
    finally:
        for audit in logs:
            audit.stop()


def test_a_witness_prints_the_key_to_configure_and_keeps_it(tmp_path) -> None:
    log = Verifier("log.example/one", Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()).text()
    flags = ["--log", log, "--name", "witness.example/w1", "--state", tmp_path / "w", "--port", str(free_port())]
    command = [sys.executable, "-m", "affidavit.tools.cli", "audit", "witness", *map(str, flags)]
    keys = []
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            keys.append(WitnessKey.parse(process.stdout.readline().strip()))
            process.send_signal(signal.SIGKILL)
    assert keys[0] == keys[1]
    assert run("witness", *flags[:4], "--state", tmp_path / "w", "--name", "two words").returncode == 2
