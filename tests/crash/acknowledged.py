"""Callers of a log that may end at any moment, and what must hold of the log afterwards."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import grpc

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.note import TreeHead, Verifier, open_checkpoint
from affidavit.libs.evidence.record import parse_leaf
from affidavit.services.audit.head import HeadFile
from tests.contract.audit_process import AuditProcess, append, head, item

CALLERS = 8


class Heard:
    """What callers sent, and the receipts that reached them."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self.receipts: dict[str, evidence_pb2.Receipt] = {}

    def keep(self, request_id: str, receipt: evidence_pb2.Receipt) -> None:
        """A second receipt of a key must be of the same record."""
        first = self.receipts.setdefault(request_id, receipt)
        assert (first.index, first.leaf) == (receipt.index, receipt.leaf), f"{request_id} has two records"


async def call(stub, name: str, heard: Heard, first_answer: asyncio.Event, again: Sequence[str] = ()) -> None:
    """Append records of new keys, and first those of `again`, until the log answers no more."""
    stream = stub.AppendRecords()
    number = 0
    waiting_again = list(again)
    try:
        while True:
            ids = [f"{name}-{number + n}" for n in range(random.randint(1, 9))]
            number += len(ids)
            ids += [waiting_again.pop() for _ in range(min(20, len(waiting_again)))]
            heard.sent.update(ids)
            items = [item(request_id, sequence=n) for n, request_id in enumerate(ids)]
            await stream.write(audit_pb2.AppendRecordsRequest(items=items))
            waiting = len(ids)
            while waiting:
                answer = await stream.read()
                for result in answer.results:
                    if result.WhichOneof("outcome") == "error":
                        return
                    heard.keep(ids[result.sequence], result.receipt)
                waiting -= len(answer.results)
            first_answer.set()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError, AttributeError):
        return  # killed: `read` says end of stream, or the call is gone


def head_on_disk(home: Path) -> TreeHead:
    """The signed head as it lies in the data folder, its signature checked."""
    note = HeadFile(home / "audit" / "head").read()
    assert note is not None
    return LogKeys(AuditProcess.key_of(home)).open(note)


async def check(audit: AuditProcess, heard: Heard, heads: Sequence[TreeHead] = ()) -> None:
    """Of a log that answers again: every acknowledged record is there, at its index, proved, under a checkpoint that
    the log still continues; it has nothing that nobody sent, and nothing twice; so had every earlier head of `heads`.
    """
    async with audit.stub() as stub:
        leaves, newest = await whole_log(stub)
        size = len(leaves)
        verifier = Verifier(TreeHead.unverified(newest).origin, audit.key)
        roots = _roots(leaves)
        assert open_checkpoint(newest, [verifier]) == TreeHead(verifier.name, size, roots[size])
        stored = [parse_leaf(leaf).request_id for leaf in leaves]
        assert max(Counter(stored).values(), default=1) == 1, "a key has two records"
        assert set(stored) <= heard.sent, "the log has a record that nobody sent"
        for request_id, receipt in heard.receipts.items():
            verified = audit.verify(receipt, request_id)
            assert receipt.index < size, f"{request_id} was acknowledged and is gone"
            assert leaves[receipt.index] == receipt.leaf, f"{request_id} is not at its place"
            assert roots[verified.head.size] == verified.head.root, f"{request_id}'s checkpoint is of another log"
        assert [roots.get(h.size) for h in heads] == [h.root for h in heads], "a head is not a beginning of the log"
        for index in random.sample(range(size), min(50, size)):
            record = (await stub.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
            audit.verify(record, stored[index])
            assert record.leaf == leaves[index]


async def whole_log(stub) -> tuple[list[bytes], bytes]:
    """Every leaf, in order, and the checkpoint that covers them."""
    leaves: list[bytes] = []
    note = b""
    async for answer in stub.ListRecords(audit_pb2.ListRecordsRequest()):
        note = answer.checkpoint.note or note
        assert [record.index for record in answer.records] == list(
            range(len(leaves), len(leaves) + len(answer.records))
        )
        leaves += [record.leaf for record in answer.records]
    return leaves, note


async def check_retries(audit: AuditProcess, heard: Heard) -> None:
    """Whoever heard nothing, or did, comes again with the same keys: each is there exactly once then."""
    async with audit.stub() as stub:
        ids = sorted(heard.sent)
        again = [item(request_id, sequence=n) for n, request_id in enumerate(ids)]
        results = await append(stub, [again[n : n + 500] for n in range(0, len(again), 500)])
        for result in results:
            assert result.WhichOneof("outcome") == "receipt", result.error.message
            heard.keep(ids[result.sequence], result.receipt)
        assert len({result.receipt.index for result in results}) == len(ids)
        assert (await head(stub)).size == len(ids)


def _roots(leaves: Sequence[bytes]) -> Mapping[int, bytes]:
    frontier = merkle.Frontier()
    roots = {0: frontier.root()}
    for leaf in leaves:
        frontier.append(merkle.leaf_hash(leaf))
        roots[frontier.size] = frontier.root()
    return roots
