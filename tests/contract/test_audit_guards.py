"""The commands `affidavit audit witness` and `monitor` as a user runs them, each a process of its own."""

import shutil
import signal
import subprocess
import sys

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.evidence.cosignature import WitnessKey
from affidavit.libs.evidence.note import Verifier
from tests.contract.audit_process import AuditProcess, append, head, item


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "affidavit.tools.cli", "audit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


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


def test_a_witness_prints_the_key_to_configure_and_keeps_it(tmp_path) -> None:
    log = Verifier("log.example/one", Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()).text()
    flags = ["--log", log, "--name", "witness.example/w1", "--state", tmp_path / "w", "--port", "17461"]
    command = [sys.executable, "-m", "affidavit.tools.cli", "audit", "witness", *map(str, flags)]
    keys = []
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            keys.append(WitnessKey.parse(process.stdout.readline().strip()))
            process.send_signal(signal.SIGKILL)
    assert keys[0] == keys[1]
    assert run("witness", *flags[:4], "--state", tmp_path / "w", "--name", "two words").returncode == 2
