"""A power cut at any change of the disk: what was acknowledged is there afterwards, and the log always starts."""

import asyncio
import random
from pathlib import Path

import pytest

from affidavit.libs.evidence.note import TreeHead
from affidavit.libs.evidence.tilepaths import entries_path, tile_levels, tile_path, tile_widths
from tests.contract.audit_process import DEADLINE_S, AuditProcess, append, append_one, item
from tests.crash.acknowledged import CALLERS, Heard, call, check, check_retries, head_on_disk
from tests.crash.faults.disk import Disk, Variant
from tests.crash.faults.preload import Faults

# Measured: the first start makes about 110 changes and syncs, one after a power cut 60; a group commit 3 or 4.
START, LOAD = 130, 400


async def live(home: Path, journal: Path, cut: int, heard: Heard) -> None:
    """One life of the service, under load from the moment it answers, until it dies at the `cut`-th change."""
    faults = Faults(home, journal, cut)
    audit = AuditProcess(home, "--publish-interval-s", "0.05", environment=faults.environment())
    again = random.sample(sorted(heard.receipts), min(100, len(heard.receipts)))
    try:
        async with audit.stub() as stub:
            answered = asyncio.Event()
            names = [f"{journal.name}-{n}" for n in range(CALLERS)]
            await asyncio.gather(*(call(stub, name, heard, answered, again) for name in names))
    except AssertionError:
        if audit.process.poll() is None:
            raise
    finally:
        code = audit.process.wait(DEADLINE_S)
        audit.kill()
    assert code == -9, f"it ended by itself with {code}: {audit.stderr()[-2000:]}"


async def cut_and_check(place: Path, seed: int) -> None:
    """Three lives: one is killed without a power cut, so that the next finds what was never synced."""
    seeded = random.Random(seed)
    home = place / "home"
    home.mkdir()
    heard = Heard()
    spared = seeded.choice([0, 1, None])
    disk = Disk(home)
    for number in range(3):
        cut = seeded.randint(1, START if seeded.random() < 0.4 else LOAD)
        journal = place / f"life-{number}"
        await live(home, journal, cut, heard)
        disk.replay(journal)
        disk.check()
        if number != spared:
            disk.cut(seeded.choice(list(Variant)), seeded.getrandbits(32))
            disk = Disk(home)
    audit = AuditProcess(home)
    try:
        await check(audit, heard)
        await check_retries(audit, heard)
    finally:
        audit.kill()


async def test_at_the_moment_of_a_receipt_its_record_and_a_head_over_it_are_on_the_disk(tmp_path: Path) -> None:
    home, journal = tmp_path / "home", tmp_path / "journal"
    home.mkdir()
    disk, heard = Disk(home), Heard()
    audit = AuditProcess(home, environment=Faults(home, journal).environment())
    try:
        async with audit.stub() as stub:
            for number in range(3):
                heard.sent.add(f"r-{number}")
                heard.keep(f"r-{number}", (await append_one(stub, item(f"r-{number}"))).receipt)
    finally:
        audit.kill()
    disk.replay(journal)
    disk.check()
    disk.cut(Variant.NOTHING, 0)
    assert head_on_disk(home).size == 3
    audit = AuditProcess(home)
    try:
        await check(audit, heard)
        await check_retries(audit, heard)
    finally:
        audit.kill()


async def test_no_power_cut_leaves_a_published_checkpoint_without_its_tiles(tmp_path: Path) -> None:
    home, journal = tmp_path / "home", tmp_path / "journal"
    home.mkdir()
    disk = Disk(home)
    audit = AuditProcess(home, "--publish-interval-s", "0.02", environment=Faults(home, journal).environment())
    async with audit.stub() as stub:
        for number in range(12):
            await append(stub, [[item(f"{number}-{n}") for n in range(50)]])
            await asyncio.sleep(0.05)  # so that some are published by themselves; the last by the stop
    assert audit.stop() == 0
    tiles = Path("audit") / "tiles"
    sizes: list[int] = []

    def after_rename(name: str) -> None:
        note = disk.live(tiles / "checkpoint")
        if name != "checkpoint" or note is None or TreeHead.unverified(note).size in sizes:
            return
        size = TreeHead.unverified(note).size
        for level in tile_levels(size):
            for number, width in enumerate(tile_widths(level, size)):
                paths = [tile_path(level, number, width), *([] if level else [entries_path(number, width)])]
                for path in paths:
                    assert disk.durable(tiles / path), f"{path} may be gone while the checkpoint of {size} is there"
        sizes.append(size)

    disk.replay(journal, after_rename)
    disk.check()
    assert len(sizes) >= 2
    assert sizes[-1] == 600


async def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    await cut_and_check(tmp_path, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 60))
async def test_many_power_cuts_lose_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    await cut_and_check(tmp_path, seed)
