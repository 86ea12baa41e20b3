"""A power cut at any change of the disk: what was acknowledged is there afterwards, and the log always starts."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.contract.audit_process import DEADLINE_S, AuditProcess
from tests.crash.acknowledged import CALLERS, Heard, call, check, check_retries
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


@pytest.mark.parametrize("seed", range(3))
async def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    await cut_and_check(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 60))
async def test_one_hundred_and_fifty_power_cuts_lose_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    await cut_and_check(tmp_path, seed)
