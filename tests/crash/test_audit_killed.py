"""SIGKILL under load: whatever was acknowledged is there afterwards, at its place, once, and proved."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import grpc
import pytest

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.note import TreeHead, Verifier, open_checkpoint
from affidavit.services.audit.head import HeadFile
from tests.contract.audit_process import AuditProcess, append, head, item

CALLERS = 8
Acknowledged = dict[str, evidence_pb2.Receipt]


async def caller(stub, name: str, acknowledged: Acknowledged, sent: set[str], enough: asyncio.Event) -> None:
    """Appends until the process is killed, and keeps every receipt that arrived."""
    stream = stub.AppendRecords()
    number = 0
    try:
        while True:
            ids = [f"{name}-{number + n}" for n in range(random.randint(1, 9))]
            number += len(ids)
            sent.update(ids)
            items = [item(request_id, sequence=n) for n, request_id in enumerate(ids)]
            await stream.write(audit_pb2.AppendRecordsRequest(items=items))
            waiting = len(ids)
            while waiting:
                answer = await stream.read()
                for result in answer.results:
                    acknowledged[ids[result.sequence]] = result.receipt
                waiting -= len(answer.results)
            enough.set()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError, AttributeError):
        return  # killed: `read` says end of stream, or the call is gone


async def load_and_kill(home: Path, life: int, acknowledged: Acknowledged, sent: set[str], pause_s: float) -> None:
    audit = AuditProcess(home)
    try:
        async with audit.stub() as stub:
            enough = asyncio.Event()
            callers = [
                asyncio.create_task(caller(stub, f"{life}-{n}", acknowledged, sent, enough)) for n in range(CALLERS)
            ]
            await enough.wait()
            await asyncio.sleep(pause_s)  # where in the group commits the kill falls is left to chance
            audit.kill()
            await asyncio.gather(*callers)
    finally:
        audit.kill()


async def check_everything(home: Path, acknowledged: Acknowledged, sent: set[str]) -> None:
    audit = AuditProcess(home)
    try:
        async with audit.stub() as stub:
            size = (await head(stub)).size
            records = [(await stub.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt for index in range(size)]
            stored = [audit.verify(receipt).leaf.request_id for receipt in records]
            assert max(Counter(stored).values()) == 1, "a key has two records"
            for request_id, receipt in acknowledged.items():
                verified = audit.verify(receipt, request_id)
                assert records[receipt.index].leaf == receipt.leaf, f"{request_id} is not at its place"
                assert verified.head.size <= size
            # A caller that heard nothing comes again with the same keys: each is there exactly once then.
            again = [item(request_id, sequence=n) for n, request_id in enumerate(sorted(sent))]
            results = await append(stub, [again[n : n + 500] for n in range(0, len(again), 500)])
            places = {r.receipt.index for r in results}
            assert len(places) == len(sent)
            assert (await head(stub)).size == len(sent)
            for result in results:
                audit.verify(result.receipt, sorted(sent)[result.sequence])
    finally:
        audit.kill()


async def kill_repeatedly(home: Path, lives: int) -> None:
    acknowledged: Acknowledged = {}
    sent: set[str] = set()
    heads: list[TreeHead] = []
    for life in range(lives):
        await load_and_kill(home, life, acknowledged, sent, random.uniform(0, 0.1))
        key = AuditProcess.key_of(home)
        note = HeadFile(home / "audit" / "head").read()
        assert note is not None
        origin = note.decode().splitlines()[0]
        heads.append(open_checkpoint(note, [Verifier(origin, key)]))
        newest = max(receipt.inclusion_proof.tree_size for receipt in acknowledged.values())
        assert heads[-1].size >= newest, "a receipt is under no head on the disk"
    assert acknowledged
    await check_everything(home, acknowledged, sent)
    await check_history(home, heads)


async def check_history(home: Path, heads: list[TreeHead]) -> None:
    """Every head that ever lay on the disk is a beginning of the log as it is now."""
    audit = AuditProcess(home)
    try:
        async with audit.stub() as stub:
            frontier = merkle.Frontier()
            roots = {0: frontier.root()}
            for index in range((await head(stub)).size):
                receipt = (await stub.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
                frontier.append(merkle.leaf_hash(receipt.leaf))
                roots[frontier.size] = frontier.root()
    finally:
        audit.kill()
    assert [roots[h.size] for h in heads] == [h.root for h in heads]


async def test_ten_kills_under_load_lose_nothing_that_was_acknowledged(tmp_path) -> None:
    await kill_repeatedly(tmp_path / "home", lives=10)


@pytest.mark.slow
async def test_sixty_kills_under_load_lose_nothing_that_was_acknowledged(tmp_path) -> None:
    await kill_repeatedly(tmp_path / "home", lives=60)
