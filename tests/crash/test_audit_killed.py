"""SIGKILL at any moment: whatever was acknowledged is there afterwards, at its place, once, and proved."""

import asyncio
import random
from pathlib import Path

import pytest

from affidavit.libs.evidence.note import TreeHead
from tests.contract.audit_process import DEADLINE_S, AuditProcess, append_one, head, item
from tests.crash.acknowledged import CALLERS, Heard, call, check, check_retries, head_on_disk

START_S = 2.0  # a start takes about 1 s, twice that on a busy machine


async def killed_while_it_starts(home: Path) -> None:
    """Killed wherever it is then: before it holds the lock, while it recovers, or already serving."""
    audit = AuditProcess(home)
    try:
        await asyncio.sleep(random.uniform(0, START_S))
        assert audit.process.poll() is None, audit.stderr()[-2000:]
    finally:
        audit.kill()


async def killed_under_load(home: Path, life: int, heard: Heard) -> None:
    """Killed a moment after its first answer. Every two callers send the same keys, and all come again with those that
    an earlier life left unanswered, and with some that it had answered."""
    audit = AuditProcess(home)
    unanswered = sorted(heard.sent - heard.receipts.keys())
    again = unanswered + random.sample(sorted(heard.receipts), min(50, len(heard.receipts)))
    try:
        async with audit.stub() as stub:
            answered = asyncio.Event()
            callers = [
                asyncio.create_task(call(stub, f"{life}-{n // 2}", heard, answered, again)) for n in range(CALLERS)
            ]
            async with asyncio.timeout(DEADLINE_S):
                await answered.wait()
            await asyncio.sleep(random.uniform(0, 0.04))  # where in the group commits it falls is left to chance
            audit.kill()
            await asyncio.gather(*callers)
    finally:
        audit.kill()


async def kill_repeatedly(home: Path, kills: int) -> None:
    heard = Heard()
    heads: list[TreeHead] = []
    for life in range(kills):
        if life % 4 == 1:
            await killed_while_it_starts(home)
        else:
            await killed_under_load(home, life, heard)
        heads.append(head_on_disk(home))
        newest = max(receipt.inclusion_proof.tree_size for receipt in heard.receipts.values())
        assert heads[-1].size >= newest, "a receipt is under no head on the disk"
    audit = AuditProcess(home)
    try:
        await check(audit, heard, heads)
        await check_retries(audit, heard)
        await check_conflicts(audit, heard)
    finally:
        audit.kill()


async def check_conflicts(audit: AuditProcess, heard: Heard) -> None:
    """A key that has its record takes no other content, also after all those kills."""
    async with audit.stub() as stub:
        for request_id in random.sample(sorted(heard.sent), min(50, len(heard.sent))):
            refused = await append_one(stub, item(request_id, content=b"other"))
            assert refused.error.reason == "IDEMPOTENCY_CONFLICT"
            assert f"is record {heard.receipts[request_id].index}" in refused.error.message
        assert (await head(stub)).size == len(heard.sent)


async def test_four_kills_lose_nothing_that_was_acknowledged_and_make_nothing_twice(tmp_path: Path) -> None:
    await kill_repeatedly(tmp_path / "home", kills=4)


@pytest.mark.slow
async def test_two_hundred_kills_lose_nothing_that_was_acknowledged_and_make_nothing_twice(tmp_path: Path) -> None:
    # Four logs at a time: most of a life is Python's imports.
    await asyncio.gather(*(kill_repeatedly(tmp_path / f"log-{number}", kills=50) for number in range(4)))
