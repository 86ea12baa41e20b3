"""From the log: a record, the records that it refers to, and every proof against one checkpoint."""

import json
from dataclasses import dataclass, field

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence.record import Leaf, parse_leaf
from affidavit.libs.evidence.rotation import Handover
from affidavit.libs.evidence.timestamps import Timestamp, TimestampFolder


@dataclass(frozen=True)
class ProvedLeaf:
    """A leaf's bytes and its audit path to the pack's checkpoint."""

    data: bytes
    path: tuple[bytes, ...]

    @property
    def leaf(self) -> Leaf:
        return parse_leaf(self.data)


@dataclass(frozen=True)
class Collected:
    """The receipt of the packed record, its environment, (for a closing record) the records that it closes over, and the
    timestamp over the receipt's checkpoint."""

    receipt: evidence_pb2.Receipt
    environment: ProvedLeaf | None
    children: tuple[ProvedLeaf, ...] = field(default=())
    timestamp: Timestamp | None = None
    # Of every rotation of the log's key that the checkpoint covers: the handover, and its record as of the checkpoint.
    handovers: tuple[Handover, ...] = ()
    rotations: tuple[ProvedLeaf, ...] = ()

    @property
    def model_hashes(self) -> frozenset[bytes]:
        """Of the models that the records name."""
        leaves = (self.receipt.leaf, *(child.data for child in self.children))
        steps = [step for leaf in leaves for step in json.loads(leaf)["steps"]]
        return frozenset(bytes.fromhex(step["model_hash"]) for step in steps if step["model_hash"])


async def gather(
    log: audit_pb2_grpc.AuditServiceStub, index: int, kept: TimestampFolder, receipt: evidence_pb2.Receipt | None = None
) -> Collected:
    """What the pack of a record needs: as of the first timestamped checkpoint that covers it, else of the newest one; or
    as of a receipt's own, with the timestamp over just that one, if there is any.

    Raises:
        grpc.aio.AioRpcError: what the log says. OSError: a timestamp cannot be read.
    """
    if receipt is None:
        return await collect(log, index, kept)
    found = kept.of_size(receipt.inclusion_proof.tree_size)
    return await complete(log, receipt, found if found and found.checkpoint == receipt.checkpoint.note else None)


async def collect(log: audit_pb2_grpc.AuditServiceStub, index: int, kept: TimestampFolder) -> Collected:
    """Record `index` as of the first timestamped checkpoint that covers it; as of the newest one where none does.

    Raises:
        grpc.aio.AioRpcError: what the log says. OSError: a timestamp cannot be read.
    """
    receipt = (await log.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
    timestamp = kept.first_covering(index)
    if timestamp is not None:
        asked = audit_pb2.GetInclusionProofRequest(leaf_index=index, tree_size=timestamp.size)
        receipt.inclusion_proof.CopyFrom((await log.GetInclusionProof(asked)).inclusion_proof)
        receipt.checkpoint.note = timestamp.checkpoint
    return await complete(log, receipt, timestamp)


async def complete(
    log: audit_pb2_grpc.AuditServiceStub, receipt: evidence_pb2.Receipt, timestamp: Timestamp | None = None
) -> Collected:
    """What a receipt refers to, as of the receipt's own checkpoint: the same receipt gives the same pack for ever."""
    size = receipt.inclusion_proof.tree_size

    async def proved(place: int) -> ProvedLeaf:
        leaf = (await log.GetRecord(audit_pb2.GetRecordRequest(index=place))).receipt.leaf
        asked = audit_pb2.GetInclusionProofRequest(leaf_index=place, tree_size=size)
        return ProvedLeaf(leaf, tuple((await log.GetInclusionProof(asked)).inclusion_proof.hashes))

    leaf = parse_leaf(receipt.leaf)
    environment = None if leaf.environment_index is None else await proved(leaf.environment_index)
    children: list[ProvedLeaf] = []
    # A long document has a level of records between its closing record and its pages.
    waiting = [place for places in leaf.children for place in places]
    while waiting:
        child = await proved(waiting.pop(0))
        children.append(child)
        waiting += [place for places in child.leaf.children for place in places]
    covered = [h for h in await read_handovers(log) if parse_leaf(h.leaf).index < size]
    return Collected(
        receipt,
        environment,
        tuple(sorted(children, key=lambda c: c.leaf.index)),
        timestamp,
        tuple(covered),
        tuple([await proved(parse_leaf(h.leaf).index) for h in covered]),
    )


async def read_handovers(log: audit_pb2_grpc.AuditServiceStub) -> list[Handover]:
    """The rotations of the log's key, oldest first, not verified yet. Raises grpc.aio.AioRpcError."""
    answer = await log.GetKeyRotations(audit_pb2.GetKeyRotationsRequest())
    return [Handover(r.leaf, tuple(r.hashes), r.checkpoint.note) for r in answer.rotations]
