"""What the log says of a document's answer: enough to ask for it again, and to tell whether the same came back."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.receipt import VerificationError, verify_receipt
from affidavit.libs.evidence.record import Leaf, LeafStep, parse_leaf
from affidavit.tools.client.document import PageRange


class NotReplayable(Exception):
    """The record is of nothing that can be asked again; the message says what to do."""


@dataclass(frozen=True)
class RecordedPage:
    """A page's record; `salt` is empty once it was erased."""

    leaf: Leaf
    salt: bytes


@dataclass(frozen=True)
class Recorded:
    """A document's closing record and its pages' records, in page order; every proof was checked."""

    leaf: Leaf
    salt: bytes
    pages: tuple[RecordedPage, ...]

    @property
    def page_ranges(self) -> list[PageRange]:
        """The option `pages` as it was given."""
        options = self.leaf.options or {}
        ranges = options.get("pages")
        if not isinstance(ranges, list):
            raise NotReplayable(f"record {self.leaf.index}: its options are of no known form")
        found: list[PageRange] = []
        for pair in ranges:
            match pair:
                case [int(first), int(last)]:
                    found.append(PageRange(first, last))
                case _:
                    raise NotReplayable(f"record {self.leaf.index}: its options are of no known form")
        return found

    @property
    def threads(self) -> int:
        """Engine threads that ocr had: a part of it may use fewer than all."""
        return max((s.threads or 0 for page in self.pages for s in page.leaf.steps if s.service == "ocr"), default=0)


async def read(
    log: audit_pb2_grpc.AuditServiceStub, index: int, key: LogKeys, input: Path, result: bytes | None
) -> Recorded:
    """The records of the answer that record `index` closes.

    Args:
        key: the log's keys; every record is verified with it.
        input: must be the document that the record commits to.
        result: where given, must be the answer that the record commits to.

    Raises:
        NotReplayable: the record closes no answered document.
        VerificationError: a proof or a commitment does not hold, or the salt was erased.
        OSError: the input cannot be read.
    """
    receipt = await _receipt(log, index)
    leaf = verify_receipt(receipt, key).leaf
    if leaf.kind != "document" or leaf.phase != "closed" or leaf.output_commitment is None or not leaf.bundle:
        message = f"record {index} ({leaf.kind} {leaf.phase}) closes no answered document"
        raise NotReplayable(f"{message}; `affidavit audit ls --request {leaf.request_id}` shows which one does")
    with input.open("rb") as file:
        verify_receipt(receipt, key, result=result, input=iter(lambda: file.read(1 << 20), b""))
    pages: list[RecordedPage] = []
    waiting = [place for places in leaf.children for place in places]
    while waiting:
        child = await _receipt(log, waiting.pop())
        verified = verify_receipt(child, key).leaf
        if verified.request_id != leaf.request_id or verified.tenant != leaf.tenant:
            raise VerificationError("leaf", f"record {verified.index} is of another request than {index}")
        if verified.kind == "page":
            pages.append(RecordedPage(verified, child.salt))
        else:  # a long document has a level of records between
            waiting += [place for places in verified.children for place in places]
    return Recorded(leaf, receipt.salt, tuple(sorted(pages, key=lambda page: page.leaf.index)))


def changed_steps(recorded: Recorded, receipts: Sequence[evidence_pb2.Receipt]) -> list[str]:
    """In which software, models, engines and devices the replay differs from the record, each said once."""
    then = {step.service + " " + (step.model or ""): step for page in recorded.pages for step in page.leaf.steps}
    now = {s.service + " " + (s.model or ""): s for r in receipts if r.leaf for s in parse_leaf(r.leaf).steps}
    changed = [f"{name.strip()}: {'not used any more' if name in then else 'new'}" for name in then.keys() ^ now.keys()]
    for name in then.keys() & now.keys():
        changed += [f"{name.strip()}: {d}" for d in _differences(then[name], now[name])]
    return sorted(changed)


def _differences(then: LeafStep, now: LeafStep) -> list[str]:
    members = ("software", "version", "model_hash", "engine", "engine_version", "precision", "threads", "device_id")
    differing: list[str] = []
    for member in members:
        before, after = getattr(then, member), getattr(now, member)
        if before != after:
            differing.append(f"{member} {_plain(before)} then, {_plain(after)} now")
    return differing


def _plain(value: object) -> str:
    return value.hex()[:16] + "…" if isinstance(value, bytes) else re.sub(r"\s+", " ", str(value))


async def _receipt(log: audit_pb2_grpc.AuditServiceStub, index: int) -> evidence_pb2.Receipt:
    return (await log.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
