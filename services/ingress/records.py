"""The records of one document: opened, one a page, closed. What is appended, under which key, over which commitments."""

import hashlib
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.commitment import commit, new_salt
from affidavit.libs.evidence.record import parse_leaf
from affidavit.services.ingress.appender import Appender

_KIND_DOCUMENT = evidence_pb2.RECORD_KIND_DOCUMENT
_KIND_PAGE = evidence_pb2.RECORD_KIND_PAGE
MAX_CHILDREN = 2000  # ranges in one record


@dataclass
class DocumentRecords:
    """Appends one document's records through the shared audit stream.

    Keys are (tenant, request id, step) with the steps "opened", "page/N" and "closed". A call that ends without an answer
    closes under a step of its own, so that a repetition of the call can still close properly.
    """

    appender: Appender
    tenant: str
    request_id: str
    bundle: str
    options_json: bytes
    started: float = field(default_factory=time.monotonic)
    opened_index: int | None = None
    _environment_index: int = 0
    _content: bytes = b""
    _children: list[int] = field(default_factory=list[int])

    async def open(self, environment_index: int, input_digest: bytes, input_commitment: bytes, salt: bytes) -> None:
        """The document is complete and could be opened: from here on every answer refers to this record.

        Args:
            environment_index: of the record of the environment in which it is read.
        """
        self._environment_index = environment_index
        self._content = hashlib.sha256(
            canonicaljson.dumps(
                {"bundle": self.bundle, "input": input_digest.hex(), "options": self.options_json.decode()}
            )
        ).digest()
        draft = self._draft(_KIND_DOCUMENT, evidence_pb2.RECORD_PHASE_OPENED, "ok")
        draft.input_commitment = input_commitment
        receipt = await self._append("opened", draft, salt)
        self.opened_index = receipt.index

    async def page(
        self, number: int, image_digest: bytes, result: bytes, status: str, steps: Sequence[evidence_pb2.StepEvidence]
    ) -> evidence_pb2.Receipt:
        """Make a page's answer durable; only then may it be sent.

        Args:
            image_digest: SHA-256 of the drawn page, empty when it could not be drawn. The page's input commitment is
                over these 32 bytes; the document's bytes are committed to by the opened record.
        """
        salt = new_salt()
        draft = self._draft(_KIND_PAGE, evidence_pb2.RECORD_PHASE_SINGLE, status)
        draft.parent_index = self._opened()
        if image_digest:
            draft.input_commitment = commit(salt, image_digest)
        draft.output_commitment = commit(salt, result)
        draft.steps.extend(steps)
        receipt = await self._append(f"page/{number}", draft, salt)
        _refuse_other_answer(receipt, commit(receipt.salt, result), f"page {number}")
        self._children.append(receipt.index)
        return receipt

    async def close(
        self, input_commitment: bytes, output_commitment: bytes, status: str, salt: bytes
    ) -> evidence_pb2.Receipt:
        """The whole answer is known; both commitments are over `salt`."""
        draft = await self._closing(status)
        draft.input_commitment = input_commitment
        draft.output_commitment = output_commitment
        receipt = await self._append("closed", draft, salt)
        # A repetition gets the first receipt, whose salt is another. Its pages were compared one by one, and the rest of
        # the result follows from the input, so the answers are the same when the pages' records are.
        if receipt.salt != salt and parse_leaf(receipt.leaf).children != _of_messages(draft.children):
            raise _conflict("the document")
        return receipt

    async def abandon(self, status: str) -> None:
        """The call ended without its answer ("cancelled", "failed:REASON"); pages that were sent stay recorded."""
        if self.opened_index is not None:
            await self._append(f"abandoned/{secrets.token_hex(8)}", await self._closing(status), new_salt())

    async def _closing(self, status: str) -> evidence_pb2.RecordDraft:
        draft = self._draft(_KIND_DOCUMENT, evidence_pb2.RECORD_PHASE_CLOSED, status)
        draft.parent_index = self._opened()
        ranges = _ranges(self._children)
        if len(ranges) > MAX_CHILDREN:  # a leaf has room for 64 KB: a level of records between it and the pages
            groups = [ranges[i : i + MAX_CHILDREN] for i in range(0, len(ranges), MAX_CHILDREN)]
            ranges = _ranges([await self._group(number, group) for number, group in enumerate(groups, 1)])
        draft.children.extend(_messages(ranges))
        return draft

    async def _group(self, number: int, ranges: tuple[range, ...]) -> int:
        """A record that stands for many pages of a long document; its index."""
        draft = self._draft(_KIND_DOCUMENT, evidence_pb2.RECORD_PHASE_CLOSED, "ok")
        draft.parent_index = self._opened()
        draft.children.extend(_messages(ranges))
        return (await self._append(f"pages/{number}/{ranges[0].start}-{ranges[-1].stop}", draft, new_salt())).index

    def _draft(self, kind: int, phase: int, status: str) -> evidence_pb2.RecordDraft:
        return evidence_pb2.RecordDraft(
            tenant=self.tenant,
            request_id=self.request_id,
            kind=kind,  # type: ignore[arg-type]
            phase=phase,  # type: ignore[arg-type]
            options_json=self.options_json,
            status=status,
            latency_us=int((time.monotonic() - self.started) * 1e6),
            bundle=self.bundle,
            environment_index=self._environment_index,
        )

    async def _append(self, step: str, draft: evidence_pb2.RecordDraft, salt: bytes) -> evidence_pb2.Receipt:
        return await self.appender.append(step, draft, salt=salt, content_digest=self._content)

    def _opened(self) -> int:
        if self.opened_index is None:
            raise RuntimeError("a record that belongs to a document needs the document's opened record first")
        return self.opened_index


def _refuse_other_answer(receipt: evidence_pb2.Receipt, output_commitment: bytes, what: str) -> None:
    if parse_leaf(receipt.leaf).output_commitment != output_commitment:
        raise _conflict(what)


def _conflict(what: str) -> AffidavitError:
    return AffidavitError(
        "IDEMPOTENCY_CONFLICT",
        f"under this request id, {what} was answered differently before; use a new request id to record a new answer",
    )


def _messages(ranges: Iterable[range]) -> list[evidence_pb2.IndexRange]:
    return [evidence_pb2.IndexRange(first=r.start, last=r.stop - 1) for r in ranges]


def _of_messages(messages: Iterable[evidence_pb2.IndexRange]) -> tuple[range, ...]:
    return tuple(range(m.first, m.last + 1) for m in messages)


def _ranges(indices: Iterable[int]) -> tuple[range, ...]:
    """Rising, disjoint ranges over the indices."""
    ranges: list[range] = []
    for index in sorted(set(indices)):
        if ranges and ranges[-1].stop == index:
            ranges[-1] = range(ranges[-1].start, index + 1)
        else:
            ranges.append(range(index, index + 1))
    return tuple(ranges)
