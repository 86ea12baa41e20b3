"""One AppendRecords stream: items in, answers out as their groups are durable.

Bounded on both sides: so many items may be under way, and a client that reads no answers is read no further.
"""

import asyncio
from collections.abc import AsyncIterator

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.draft import HASH_BYTES, check_draft, check_name
from affidavit.services.audit.appender import Answer, Appender
from affidavit.services.audit.group import Entry
from affidavit.services.audit.log import Proven
from affidavit.services.audit.store import Side, record_key

MAX_ITEMS = 1024
MAX_UNDER_WAY = 4096
MAX_RESPONSE_BYTES = 1 << 20


class AppendStream:
    """The state of one stream; the appender's sink."""

    def __init__(self, appender: Appender, draining: asyncio.Event) -> None:
        self._appender = appender
        self._draining = draining
        self._room = asyncio.Semaphore(MAX_UNDER_WAY)
        self._answers: asyncio.Queue[list[Answer]] = asyncio.Queue()  # bounded by _room
        self._under_way = 0

    def deliver(self, answers: list[Answer]) -> None:
        self._answers.put_nowait(answers)

    async def responses(
        self, requests: AsyncIterator[audit_pb2.AppendRecordsRequest]
    ) -> AsyncIterator[audit_pb2.AppendRecordsResponse]:
        """Answers until the client has half-closed and every item is answered.

        Raises:
            AffidavitError: INVALID_STREAM: a message without items or with too many. DRAINING: the service stops; what
                was not answered was perhaps not appended, and may be sent again with the same keys.
        """
        reader = asyncio.create_task(self._read(requests), name="append-reader")
        reader.add_done_callback(lambda _: self.deliver([]))
        drain = asyncio.create_task(self._stop_reading(reader), name="append-drain")
        try:
            while not reader.done() or self._under_way:
                answers = await self._answers.get()
                while not self._answers.empty():
                    answers = answers + self._answers.get_nowait()
                for response in _responses(answers):
                    yield response
                self._under_way -= len(answers)
                for _ in answers:
                    self._room.release()
            if reader.cancelled():
                raise AffidavitError("DRAINING", "the audit service is stopping; append again elsewhere or later")
            reader.result()
        finally:
            drain.cancel()
            reader.cancel()

    async def _read(self, requests: AsyncIterator[audit_pb2.AppendRecordsRequest]) -> None:
        async for request in requests:
            if not 0 < len(request.items) <= MAX_ITEMS:
                message = f"a message has 1 to {MAX_ITEMS} items, this one {len(request.items)}"
                raise AffidavitError("INVALID_STREAM", message, field="items")
            for item in request.items:
                await self._room.acquire()
                self._under_way += 1
                try:
                    await self._appender.put(item.sequence, entry_of(item), self)
                except AffidavitError as error:
                    self.deliver([Answer(item.sequence, error)])

    async def _stop_reading(self, reader: asyncio.Task[None]) -> None:
        await self._draining.wait()
        reader.cancel()


def entry_of(item: audit_pb2.AppendItem) -> Entry:
    """A checked item. Raises AffidavitError (INVALID_OPTION) for one that no record can hold."""
    check_name("step", item.step)
    check_draft(item.draft, item.salt)
    if len(item.content_digest) != HASH_BYTES:
        message = f"content_digest must be {HASH_BYTES} bytes, has {len(item.content_digest)}"
        raise AffidavitError("INVALID_OPTION", message, field="content_digest")
    key = record_key(item.draft.tenant, item.draft.request_id, item.step)
    return Entry(key, Side(item.salt, item.content_digest), item.draft)


def receipt(proven: Proven) -> evidence_pb2.Receipt:
    """The message form of a proved record."""
    return evidence_pb2.Receipt(
        leaf=proven.leaf,
        index=proven.index,
        salt=proven.salt,
        checkpoint=evidence_pb2.Checkpoint(note=proven.head.note),
        inclusion_proof=evidence_pb2.InclusionProof(
            leaf_index=proven.index, tree_size=proven.head.tree.size, hashes=proven.path
        ),
    )


def _responses(answers: list[Answer]) -> list[audit_pb2.AppendRecordsResponse]:
    """Answers as few messages, none of them far over MAX_RESPONSE_BYTES."""
    responses: list[audit_pb2.AppendRecordsResponse] = []
    room = 0
    for answer in answers:
        if room <= 0:
            responses.append(audit_pb2.AppendRecordsResponse())
            room = MAX_RESPONSE_BYTES
        result = responses[-1].results.add(sequence=answer.sequence)
        match answer.outcome:
            case Proven() as proven:
                result.receipt.CopyFrom(receipt(proven))
                result.repeated_key = proven.repeated
                room -= len(proven.leaf) + 32 * len(proven.path) + 512
            case AffidavitError() as error:
                result.error.reason = error.reason
                result.error.message = error.message
                room -= len(error.message) + 512
    return responses
