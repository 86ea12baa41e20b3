"""Group commit: entries wait in one bounded queue, and one writer thread makes as many durable as one sync can.

Nothing waits for a group to fill: while the disk syncs one group, the next gathers by itself.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

from affidavit.libs.errors import AffidavitError
from affidavit.libs.telemetry import get_logger
from affidavit.services.audit import metrics
from affidavit.services.audit.group import Entry
from affidavit.services.audit.log import EvidenceLog, Proven

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


class _Waiting(NamedTuple):
    sequence: int
    entry: Entry
    sink: Sink


class Appender:
    """Owner of the writer thread."""

    def __init__(self, log: EvidenceLog, max_batch: int, queue_bound: int, moved: Callable[[], None]) -> None:
        """`moved` is called after each group commit."""
        self._log = log
        self._moved = moved
        self._max_batch = max_batch
        self._queue: asyncio.Queue[_Waiting | None] = asyncio.Queue(queue_bound)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="audit-writer")
        self._task = asyncio.create_task(self._run(), name="appender")

    @property
    def busy(self) -> bool:
        """Whether records wait for the writer."""
        return not self._queue.empty()

    async def put(self, sequence: int, entry: Entry, sink: Sink) -> None:
        """Queue an entry, waiting for room; `sink` gets its answer.

        Raises:
            AffidavitError: LOG_UNAVAILABLE: no room came free in time.
        """
        waiting = _Waiting(sequence, entry, sink)
        if not self._queue.full():
            self._queue.put_nowait(waiting)
            return
        try:
            async with asyncio.timeout(_QUEUE_TIMEOUT_S):
                await self._queue.put(waiting)
        except TimeoutError:
            message = f"the log's queue moved nothing for {_QUEUE_TIMEOUT_S:.0f} s; its disk hangs"
            raise AffidavitError("LOG_UNAVAILABLE", message) from None

    async def on_writer(self, call: Callable[[], T]) -> T:
        """Run `call` on the writer thread, between two groups."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, call)

    async def close(self) -> None:
        """Commit what is queued, then end the writer thread."""
        await self._queue.put(None)
        await self._task
        self._writer.shutdown()

    async def _run(self) -> None:
        open_ = True
        while open_:
            group: list[_Waiting] = []
            open_ = self._take(await self._queue.get(), group)
            while open_ and len(group) < self._max_batch and not self._queue.empty():
                open_ = self._take(self._queue.get_nowait(), group)
            metrics.queued.set(self._queue.qsize())
            if group:
                _deliver(group, await self._commit(group))
                self._moved()

    @staticmethod
    def _take(waiting: _Waiting | None, group: list[_Waiting]) -> bool:
        if waiting is not None:
            group.append(waiting)
        return waiting is not None

    async def _commit(self, group: list[_Waiting]) -> list[Proven | AffidavitError]:
        entries = [waiting.entry for waiting in group]
        try:
            return await self.on_writer(lambda: self._log.append(entries))
        except AffidavitError as error:
            return [error] * len(group)
        except Exception as error:  # one group's fault must not end the service's only writer
            _log.error("group_failed", exc_info=error)
            return [AffidavitError("INTERNAL", "the log failed on this group of records")] * len(group)


def _deliver(group: list[_Waiting], outcomes: list[Proven | AffidavitError]) -> None:
    by_sink: dict[int, tuple[Sink, list[Answer]]] = {}
    for waiting, outcome in zip(group, outcomes, strict=True):
        _, answers = by_sink.setdefault(id(waiting.sink), (waiting.sink, []))
        answers.append(Answer(waiting.sequence, outcome))
    for sink, answers in by_sink.values():
        sink.deliver(answers)
