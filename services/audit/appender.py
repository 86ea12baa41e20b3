"""Group commit: entries wait in one bounded queue, and one writer thread makes as many durable as one sync can.

Nothing waits for a group to fill: while the disk syncs one group, the next gathers by itself. What came together stays
together through queue, group and answer, so that a record costs no step of its own in the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

from affidavit.libs.errors import AffidavitError
from affidavit.libs.telemetry import get_logger
from affidavit.services.audit import metrics
from affidavit.services.audit.entry import Entry
from affidavit.services.audit.log import EvidenceLog, InArchive, Proven

T = TypeVar("T")
_QUEUE_TIMEOUT_S = 30.0  # a disk that takes nothing for so long is not slow, it is gone
_log = get_logger("appender")


class Answer(NamedTuple):
    """What became of one item of a stream."""

    sequence: int
    outcome: Proven | AffidavitError


class Sink(Protocol):
    """Where answers go."""

    def deliver(self, answers: list[Answer]) -> None: ...


class _Part(NamedTuple):
    """Entries of one message, at most as many as a group has."""

    entries: Sequence[Entry]
    sink: Sink


class _Records(asyncio.Queue[_Part | None]):
    """A queue whose size is the number of records in it; it is full from `maxsize` on."""

    _records = 0

    def qsize(self) -> int:
        return self._records

    def _put(self, item: _Part | None) -> None:
        self._records += len(item.entries) if item else 0
        super()._put(item)

    def _get(self) -> _Part | None:
        item = super()._get()
        self._records -= len(item.entries) if item else 0
        return item


class Appender:
    """Owner of the writer thread."""

    def __init__(self, log: EvidenceLog, max_batch: int, queue_bound: int, moved: Callable[[], None]) -> None:
        """`moved` is called after each group commit."""
        self._log = log
        self._moved = moved
        self._max_batch = max_batch
        self._queue = _Records(queue_bound)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="audit-writer")
        self._fetching: set[asyncio.Task[None]] = set()  # answers from the archive; each stream bounds its own
        self._task = asyncio.create_task(self._run(), name="appender")

    @property
    def busy(self) -> bool:
        """Whether records wait for the writer."""
        return not self._queue.empty()

    async def put(self, entries: Sequence[Entry], sink: Sink) -> None:
        """Queue entries, waiting for room; `sink` gets their answers, in one delivery or several, in order.

        What finds no room is answered with LOG_UNAVAILABLE; what is not queued yet when this is cancelled, with DRAINING.
        """
        for begin in range(0, len(entries), self._max_batch):
            part = _Part(entries[begin : begin + self._max_batch], sink)
            if not self._queue.full():
                self._queue.put_nowait(part)
                continue
            try:
                async with asyncio.timeout(_QUEUE_TIMEOUT_S):
                    await self._queue.put(part)
            except TimeoutError:
                message = f"the log's queue moved nothing for {_QUEUE_TIMEOUT_S:.0f} s; its disk hangs"
                error = AffidavitError("LOG_UNAVAILABLE", message)
                sink.deliver([Answer(entry.sequence, error) for entry in part.entries])
            except asyncio.CancelledError:
                error = AffidavitError("DRAINING", "the audit service is stopping; append again elsewhere or later")
                sink.deliver([Answer(entry.sequence, error) for entry in entries[begin:]])
                raise

    async def on_writer(self, call: Callable[[], T]) -> T:
        """Run `call` on the writer thread, between two groups."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, call)

    async def close(self) -> None:
        """Commit what is queued, then end the writer thread."""
        await self._queue.put(None)
        await self._task
        await asyncio.gather(*self._fetching)
        self._writer.shutdown()

    async def _run(self) -> None:
        part = await self._queue.get()
        while part is not None:
            group, size, ended = [part], len(part.entries), False
            part = None
            while part is None and not ended and not self._queue.empty():
                part = self._queue.get_nowait()
                if part is None:
                    ended = True
                elif size + len(part.entries) <= self._max_batch:
                    group.append(part)
                    size += len(part.entries)
                    part = None
            metrics.queued.set(self._queue.qsize())
            await self._commit(group)
            self._moved()
            if part is None and not ended:
                part = await self._queue.get()

    async def _commit(self, group: list[_Part]) -> None:
        entries = [entry for part in group for entry in part.entries]
        outcomes: list[Proven | InArchive | AffidavitError]
        try:
            outcomes = await self.on_writer(lambda: self._log.append(entries))
        except AffidavitError as error:
            outcomes = [error for _ in entries]
        except Exception as error:  # one group's fault must not end the service's only writer
            _log.error("group_failed", exc_info=error)
            outcomes = [AffidavitError("INTERNAL", "the log failed on this group of records")] * len(entries)
        begin = 0
        for part in group:
            end = begin + len(part.entries)
            self._answer(part, outcomes[begin:end])
            begin = end

    def _answer(self, part: _Part, outcomes: Sequence[Proven | InArchive | AffidavitError]) -> None:
        known: list[Answer] = []
        for entry, outcome in zip(part.entries, outcomes, strict=True):
            if isinstance(outcome, InArchive):
                task = asyncio.create_task(self._fetch(entry.sequence, outcome.index, part.sink))
                self._fetching.add(task)
                task.add_done_callback(self._fetching.discard)
            else:
                known.append(Answer(entry.sequence, outcome))
        part.sink.deliver(known)

    async def _fetch(self, sequence: int, index: int, sink: Sink) -> None:
        """Answer a repeated key from the archive; neither the writer nor the rest of its part waits for it."""
        try:
            outcome = replace(await asyncio.to_thread(self._log.record, index), repeated=True)
        except AffidavitError as error:
            outcome = error
        sink.deliver([Answer(sequence, outcome)])
