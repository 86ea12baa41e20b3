"""A whole copy of the data folder, restored from earlier, is caught: by a witness, and by a monitor."""

import asyncio
import shutil

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from affidavit.libs.evidence.cosignature import cosignatures
from affidavit.libs.evidence.note import TreeHead, Verifier, open_checkpoint, split_note
from affidavit.services.audit.append_stream import entry_of
from affidavit.services.audit.cosigning import Cosigning
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.witnessat import WitnessAt
from affidavit.tools.witness.monitor import Monitor, NotAppendOnly
from affidavit.tools.witness.server import application
from affidavit.tools.witness.witness import Witness
from tests.contract.audit_process import AuditProcess, append, head, item


def grow(log: EvidenceLog, name: str, count: int) -> None:
    log.append([entry_of(item(f"{name}-{number}")) for number in range(count)])


def verifier_of(home) -> Verifier:
    log = EvidenceLog(LogFolders.below(home))
    try:
        return Verifier(log.head.tree.origin, AuditProcess.key_of(home))
    finally:
        log.close()


@pytest.mark.parametrize("grown", [0, 3, 4], ids=["as it was", "as long as the true one", "longer than the true one"])
async def test_a_restored_copy_is_caught_by_witness_and_monitor(tmp_path, grown) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    verifier = verifier_of(home)
    witness = Witness(tmp_path / "witness", "witness.example/w1", [verifier])
    monitor = Monitor(tmp_path / "monitor", verifier)

    async with TestServer(application(witness)) as server, aiohttp.ClientSession() as session:
        at = [WitnessAt(str(server.make_url("")).rstrip("/"), witness.verifier)]

        async def look(log: EvidenceLog) -> TreeHead:
            async def prove(first: int, second: int) -> list[bytes]:
                return log.prove_consistency(first, second)

            return await monitor.see(log.head.note, prove)

        log = EvidenceLog(LogFolders.below(home))
        cosigning = Cosigning(log, at, 1, home / "audit" / "side")
        grow(log, "old", 5)
        assert len(await cosigning.once(session)) == 1
        assert (await look(log)).size == 5
        log.close()
        shutil.copytree(home, copy)

        log = EvidenceLog(LogFolders.below(home))
        cosigning = Cosigning(log, at, 1, home / "audit" / "side")
        grow(log, "true", 3)
        assert len(await cosigning.once(session)) == 1, "a restarted log learns the witness's size from its 409"
        assert (await look(log)).size == 8
        note = (home / "audit" / "side" / "cosigned").read_bytes()
        assert open_checkpoint(note, [verifier]).size == 8
        assert len(cosignatures(*split_note(note), [witness.verifier])) == 1
        log.close()

        log = EvidenceLog(LogFolders.below(copy))  # the log alone cannot tell: store and head are of one time
        if grown:
            grow(log, "false", grown)
        assert log.head.tree.size == 5 + grown
        assert await Cosigning(log, at, 1, copy / "audit" / "side").once(session) == ()
        before = (copy / "audit" / "side" / "cosigned").read_bytes()
        assert open_checkpoint(before, [verifier]).size == 5
        with pytest.raises(NotAppendOnly):
            await look(log)
        log.close()
        assert witness.newest(verifier.name).size == 8
    witness.close()


async def test_the_service_has_its_checkpoints_cosigned_and_a_short_quorum_keeps_nothing(tmp_path) -> None:
    home = tmp_path / "home"
    verifier = verifier_of(home)
    witness = Witness(tmp_path / "witness", "witness.example/w1", [verifier])
    other = Witness(tmp_path / "other", "witness.example/w2", [])  # does not know this log
    async with TestServer(application(witness)) as server, TestServer(application(other)) as stranger:
        first = f"{witness.verifier.text()}={server.make_url('')}"
        second = f"{other.verifier.text()}={stranger.make_url('')}"
        for quorum, kept in (("2", False), ("1", True)):
            flags = ("--witnesses", f"{first} {second}", "--witness-interval-s", "0.1", "--witness-quorum", quorum)
            audit = AuditProcess(home, *flags)
            try:
                async with audit.stub() as stub, asyncio.timeout(30):
                    for round_ in range(2):  # the second submission comes after the first one's outcome was dealt with
                        await append(stub, [[item(f"{quorum}-{round_}-{number}") for number in range(3)]])
                        size = (await head(stub)).size
                        while (seen := witness.newest(verifier.name)) is None or seen.size < size:
                            await asyncio.sleep(0.05)
                    path = home / "audit" / "side" / "cosigned"
                    while kept and not (path.exists() and open_checkpoint(path.read_bytes(), [verifier]).size == size):
                        await asyncio.sleep(0.05)
                    assert path.exists() == kept
            finally:
                assert audit.stop() == 0
    witness.close()
    other.close()
