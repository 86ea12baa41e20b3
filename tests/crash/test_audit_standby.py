"""A standby takes over from a killed log: nothing published is lost, callers go on, and the old server is fenced."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from affidavit.audit.v1 import audit_pb2
from affidavit.libs.evidence.epoch import epoch_of
from affidavit.libs.evidence.note import TreeHead, Verifier
from affidavit.libs.evidence.tiles import TileReader, folder_tiles
from affidavit.services.audit.fsck import check_log
from affidavit.services.audit.offline import silent
from affidavit.services.audit.opening import LogFolders
from affidavit.tools.witness.server import application
from affidavit.tools.witness.witness import Witness
from tests.contract.audit_process import AuditProcess, append, append_one, head, item


async def command(name: str, home: Path, *flags: str) -> tuple[int, str, str]:
    """Run `affidavit audit NAME --home HOME …`: exit code, stdout, stderr."""
    words = [sys.executable, "-m", "affidavit.tools.cli", "audit", name, "--home", str(home), *map(str, flags)]
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def published(folder: Path, home: Path) -> TreeHead:
    head = TreeHead.unverified((folder / "checkpoint").read_bytes())
    return TileReader(folder_tiles(folder)).head([Verifier(head.origin, AuditProcess.key_of(home))])


def give_keys(source: Path, standby: Path) -> None:
    shutil.copytree(source / "keys", standby / "keys")


async def filled(root: Path, count: int) -> Path:
    """A stopped log of `count` records, published in `root`/tiles, and a standby that has followed it, with its keys."""
    audit = AuditProcess(root / "old", "--tiles-folder", str(root / "tiles"))
    async with audit.stub() as stub:
        await append(stub, [[item(f"r-{n}") for n in range(count)]])
    assert audit.stop() == 0
    give_keys(root / "old", root / "new")
    code, out, err = await command("standby", root / "new", "--source", root / "tiles", "--every", "0")
    assert code == 0, err
    assert f"standby: {count} records, epoch 0" in out
    return root


async def grow(root: Path, first: int, last: int) -> None:
    audit = AuditProcess(root / "old", "--tiles-folder", str(root / "tiles"))
    async with audit.stub() as stub:
        await append(stub, [[item(f"r-{n}") for n in range(first, last)]])
    assert audit.stop() == 0


@pytest.mark.slow
async def test_after_a_kill_under_load_every_published_record_is_in_the_promoted_log_and_the_old_one_is_fenced(
    tmp_path,
) -> None:
    tiles = tmp_path / "tiles"
    flags = ("--tiles-folder", str(tiles), "--publish-interval-s", "0.1")
    old = AuditProcess(tmp_path / "old", *flags)
    given: dict[str, int] = {}
    async with old.stub() as stub:
        await append_one(stub, item("first"))
    give_keys(tmp_path / "old", tmp_path / "new")
    follow = [sys.executable, "-m", "affidavit.tools.cli", "audit", "standby", "--home", str(tmp_path / "new")]
    standby = await asyncio.create_subprocess_exec(
        *follow, "--source", str(tiles), "--every", "0.1", stdout=asyncio.subprocess.PIPE
    )
    told = asyncio.create_task(standby.stdout.readline())
    try:
        async with old.stub() as stub:
            number = 0
            while not told.done() or published(tiles, tmp_path / "old").size < 2000:
                names = [f"r-{number + n}" for n in range(50)]
                for result in await append(stub, [[item(name, sequence=n) for n, name in enumerate(names)]]):
                    given[names[result.sequence]] = result.receipt.index
                number += 50
            old.kill()
    finally:
        old.kill()
        standby.terminate()
        ended = await asyncio.wait_for(standby.wait(), 60)
    assert ended == 0
    size = published(tiles, tmp_path / "old").size
    followed = int((await told).split()[1])
    assert 0 < followed <= size

    code, out, err = await command("promote", tmp_path / "new", "--tiles-folder", tiles)
    assert code == 0, err
    assert "promoted to epoch 1" in out
    assert epoch_of(published(tiles, tmp_path / "new")) == 1
    new = AuditProcess(tmp_path / "new", *flags)
    try:
        async with new.stub() as stub:
            now = await head(stub)
            assert (now.size, epoch_of(now)) == (size + 1, 1)
            by_index = {index: name for name, index in given.items() if index < size}
            for index in [*range(1, size, 97), size - 1]:
                receipt = (await stub.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
                assert new.verify(receipt).leaf.request_id == by_index[index]
            opening = new.verify((await stub.GetRecord(audit_pb2.GetRecordRequest(index=size))).receipt).leaf
            assert (opening.kind, opening.body["event"], opening.body["accepted_loss"]) == (
                "model_event",
                "log_promoted",
                None,
            )
            assert new.verify((await append_one(stub, item("after"))).receipt).leaf.index == size + 1
    finally:
        assert new.stop() == 0
    report = check_log(LogFolders.below(tmp_path / "new"), tiles, silent)
    assert (report.findings, report.size) == ([], size + 2)

    code, line = AuditProcess(tmp_path / "old", *flags).ended()
    assert code == 4
    assert "LOG_FENCED" in line
    assert "epoch 1" in line


@pytest.mark.slow
async def test_a_standby_does_not_serve_before_it_is_promoted(tmp_path) -> None:
    root = await filled(tmp_path, 300)
    code, line = AuditProcess(root / "new").ended()
    assert code == 4
    assert "affidavit audit promote" in line
    code, _, err = await command("promote", root / "old")
    assert code == 3
    assert "is no standby's" in err


@pytest.mark.slow
async def test_a_promotion_catches_up_with_what_was_published_after_the_standby_stopped(tmp_path) -> None:
    root = await filled(tmp_path, 300)
    await grow(root, 300, 700)
    code, out, err = await command("promote", root / "new")
    assert code == 0, err
    assert "701 records" in out


@pytest.mark.slow
async def test_records_that_are_known_and_not_here_refuse_a_promotion_until_just_they_are_given_up(tmp_path) -> None:
    root = await filled(tmp_path, 300)
    await grow(root, 300, 320)
    shutil.rmtree(root / "tiles" / "tile" / "entries")  # the checkpoint is seen, its records are not to be had
    for given in ([], ["--accept-loss", "300..318"], ["--accept-loss", "299..319"]):
        code, _, err = await command("promote", root / "new", *given)
        assert code == 4
        assert "records 300 to 319 are not here" in err
        assert "--accept-loss 300..319" in err
    code, out, err = await command("promote", root / "new", "--accept-loss", "300..319")
    assert code == 0, err
    assert "given up: records 300..319" in out
    new = AuditProcess(root / "new")
    try:
        async with new.stub() as stub:
            opening = new.verify((await stub.GetRecord(audit_pb2.GetRecordRequest(index=300))).receipt).leaf
            assert opening.body["accepted_loss"] == "300..319"
    finally:
        assert new.stop() == 0


@pytest.mark.slow
async def test_a_source_with_another_past_is_not_followed_and_nothing_of_it_is_taken(tmp_path) -> None:
    root = await filled(tmp_path, 300)
    shutil.copytree(root / "old", root / "fork")
    await grow(root, 300, 310)
    flags = ("--every", "0", "--source")
    code, out, err = await command("standby", root / "new", *flags, root / "tiles")
    assert code == 0, err
    assert "310 records" in out
    for first, size, said in (
        (300, 305, "another tree of 305 records"),
        (305, 320, "do not lead from what was followed"),
    ):
        fork = AuditProcess(root / "fork")
        async with fork.stub() as stub:
            await append(stub, [[item(f"false-{n}") for n in range(first, size)]])
        assert fork.stop() == 0
        code, _, err = await command("standby", root / "new", *flags, root / "fork" / "audit" / "tiles")
        assert code == 4
        assert said in err
    code, out, err = await command("promote", root / "new")
    assert code == 0, err
    assert "311 records" in out


@pytest.mark.slow
async def test_a_witness_fences_the_old_server_that_shares_no_folder_with_the_new_one(tmp_path) -> None:
    root = await filled(tmp_path, 300)
    origin = published(root / "tiles", root / "old").origin
    verifier = Verifier(origin, AuditProcess.key_of(root / "old"))
    witness = Witness(root / "witness", "witness.example/w1", [verifier])
    async with TestServer(application(witness)) as server:
        at = ("--witnesses", f"{witness.verifier.text()}={server.make_url('')}")
        shared = ("--tiles-folder", str(root / "tiles"), *at, "--witness-interval-s", "0.1")
        old = AuditProcess(root / "old", *shared)
        try:
            async with old.stub() as stub:
                await append_one(stub, item("seen by the witness"))
                async with asyncio.timeout(30):
                    while (seen := witness.newest(origin)) is None or seen.size < 301:
                        await asyncio.sleep(0.05)
        finally:
            assert old.stop() == 0
        code, _, err = await command("promote", root / "new", *at)
        assert code == 0, err
        assert epoch_of(witness.newest(origin)) == 1

        shutil.rmtree(root / "tiles")  # the old server sees nothing but the witness
        old = AuditProcess(root / "old", *shared)
        try:
            async with old.stub() as stub:
                refused = await append_one(stub, item("a fork"))
                assert refused.error.reason == "LOG_FENCED"
                assert "epoch 1" in refused.error.message
                assert (await head(stub)).size == 301
        finally:
            old.kill()
        assert epoch_of(witness.newest(origin)) == 1
    witness.close()


@pytest.mark.slow
async def test_what_a_witness_has_cosigned_and_nobody_has_refuses_a_promotion(tmp_path) -> None:
    root = await filled(tmp_path, 300)
    origin = published(root / "tiles", root / "old").origin
    witness = Witness(root / "witness", "witness.example/w1", [Verifier(origin, AuditProcess.key_of(root / "old"))])
    shutil.copytree(root / "tiles", root / "earlier")
    async with TestServer(application(witness)) as server:
        at = ("--witnesses", f"{witness.verifier.text()}={server.make_url('')}")
        old = AuditProcess(root / "old", *at, "--witness-interval-s", "0.1", "--tiles-folder", str(root / "tiles"))
        async with old.stub() as stub, asyncio.timeout(30):
            await append(stub, [[item(f"more-{n}") for n in range(5)]])
            while (seen := witness.newest(origin)) is None or seen.size < 305:
                await asyncio.sleep(0.05)
        old.kill()
        shutil.rmtree(root / "tiles")
        shutil.copytree(root / "earlier", root / "tiles")
        code, _, err = await command("promote", root / "new", *at)
        assert code == 4
        assert "records 300 to 304 are not here" in err
        assert (root / "new" / "audit" / "standby").exists()
    witness.close()
