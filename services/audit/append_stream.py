"""One AppendRecords stream: items in, answers out as their groups are durable.

Bounded on both sides: so many items may be under way, and a client that reads no answers is read no further.

Messages are bytes on both sides: a message object for each record, in and out, would cost more than its commit.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from affidavit import _native
from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.services.audit.appender import Answer, Appender
from affidavit.services.audit.entry import Entry, checked, entry_of, read_request
from affidavit.services.audit.log import Proven

MAX_ITEMS = 1024
MAX_UNDER_WAY = 4096
MAX_RESPONSE_BYTES = 1 << 20


class AppendStream:
    """The state of one stream; the appender's sink."""

    def __init__(self, appender: Appender, draining: asyncio.Event) -> None:
        self._appender = appender
        self._draining = draining
        self._answered = asyncio.Event()
        self._answers: asyncio.Queue[list[Answer]] = asyncio.Queue()  # bounded by MAX_UNDER_WAY
        self._under_way = 0

    def deliver(self, answers: list[Answer]) -> None:
        self._answers.put_nowait(answers)

    async def responses(self, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Answers until the client has half-closed and every item is answered; AppendRecordsRequest messages in,
        AppendRecordsResponse messages out, both serialised.

        Raises:
            AffidavitError: INVALID_STREAM: a message that is none, without items or with too many. DRAINING: the
                service stops; what was not answered was perhaps not appended, and may be sent again with the same keys.
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
                self._answered.set()
            if reader.cancelled():
                raise AffidavitError("DRAINING", "the audit service is stopping; append again elsewhere or later")
            reader.result()
        finally:
            drain.cancel()
            reader.cancel()

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        async for request in requests:
            items = read_request(request)
            if not 0 < len(items) <= MAX_ITEMS:
                message = f"a message has 1 to {MAX_ITEMS} items, this one {len(items)}"
                raise AffidavitError("INVALID_STREAM", message, field="items")
            while self._under_way and self._under_way + len(items) > MAX_UNDER_WAY:
                self._answered.clear()
                await self._answered.wait()
            self._under_way += len(items)
            entries: list[Entry] = []
            for item in items:
                try:
                    entries.append(checked(item))
                except AffidavitError as error:
                    self.deliver([Answer(item.sequence, error)])
            await self._appender.put(entries, self)

    async def _stop_reading(self, reader: asyncio.Task[None]) -> None:
        await self._draining.wait()
        reader.cancel()


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


def _responses(answers: list[Answer]) -> list[bytes]:
    """Answers as few messages, none of them far over MAX_RESPONSE_BYTES."""
    responses: list[list[bytes]] = []
    room = 0
    for answer in answers:
        if room <= 0:
            responses.append([])
            room = MAX_RESPONSE_BYTES
        result = _result(answer)
        responses[-1].append(result)
        room -= len(result)
    return [b"".join(results) for results in responses]  # entries of a repeated field, one after the other, are it


def _result(answer: Answer) -> bytes:
    outcome = answer.outcome
    if isinstance(outcome, AffidavitError):
        error = audit_pb2.AppendError(reason=outcome.reason, message=outcome.message)
        result = audit_pb2.AppendResult(sequence=answer.sequence, error=error)
        return audit_pb2.AppendRecordsResponse(results=[result]).SerializeToString()
    head = outcome.head
    return _native.append_result(
        answer.sequence,
        outcome.index,
        outcome.leaf,
        outcome.salt,
        head.note,
        head.tree.size,
        outcome.path,
        outcome.repeated,
    )


__all__ = ["MAX_ITEMS", "AppendStream", "entry_of", "receipt"]
