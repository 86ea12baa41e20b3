"""One batcher: items in from the event loop, batches through engine threads, results back."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from opentelemetry import trace

from affidavit._native import Admission, Batch, DynamicBatchScheduler, SchedulerStats
from affidavit.libs.batching import metrics
from affidavit.libs.batching.health import BatchHealth, Pulse
from affidavit.libs.errors import AffidavitError
from affidavit.libs.telemetry import get_logger

Item = TypeVar("Item")
Result = TypeVar("Result")

_log = get_logger("batching")
_tracer = trace.get_tracer("affidavit.batching")

# An engine thread looks up so often although nothing woke it; it bounds every wait and costs nothing.
_LOOK_UP_S = 10.0


@dataclass(frozen=True, eq=False)
class _Entry(Generic[Item, Result]):
    """An item on its way, with its caller's context and span: engine threads inherit neither."""

    item: Item
    answer: asyncio.Future[Result]
    context: contextvars.Context
    span: trace.SpanContext


class Batcher(Generic[Item, Result]):
    """Runs items through an engine in batches.

    The engine is called in one of `threads` threads with a list of items of one group and returns as many results, in
    order. It runs in the context (contextvars, OpenTelemetry's among them) of the batch's first item, inside a span
    that links to the span of every item.

    Args:
        name: of the engine or model; the metrics' `model` label and the threads' names.
        engine: items to results; blocking, called without the event loop.
        capacity: items that may wait; more are refused with QUEUE_FULL.
        max_batch, max_wait_us, sigma, ratio, hold_us: as `affidavit._native.DynamicBatchScheduler` explains.
        threads: engine threads, each in one engine call at a time.
    """

    def __init__(
        self,
        name: str,
        engine: Callable[[list[Item]], Sequence[Result]],
        *,
        capacity: int,
        max_batch: int,
        max_wait_us: int,
        sigma: float = 1.0,
        ratio: float = 1.25,
        hold_us: int | None = None,
        threads: int = 1,
    ) -> None:
        self.name = name
        self._engine = engine
        self._scheduler = DynamicBatchScheduler(capacity, max_batch, max_wait_us, sigma, ratio, hold_us=hold_us)
        self._ids = count()
        # Items that wait or are in an engine. The loop alone adds and removes; engine threads read what a batch names.
        self._entries: dict[int, _Entry[Item, Result]] = {}
        self._pulse = Pulse()
        self._loop: asyncio.AbstractEventLoop | None = None
        scheduler = self._scheduler
        metrics.waiting.labels(name).set_function(lambda: scheduler.stats().depth)
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-engine-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def submit(self, item: Item, *, cost: float = 1.0, group: int = 0, canary: bool = False) -> Result:
        """The engine's result for `item`. Cancelling the awaiting task takes the item out of the queue.

        Args:
            cost: what the item adds to a batch, in any unit, more than 0; similar costs share batches.
            group: only items of one group share a batch (a tensor shape, 0 to 2^32 - 1).
            canary: go before everything else, with room of its own when the queue is full.

        Raises:
            AffidavitError: QUEUE_FULL at once when there is no room; ENGINE_FAILED when the engine raised on this batch
                (the engine's exception is its cause; an AffidavitError of the engine comes as it is); DRAINING when the
                batcher is closed.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError(f"batcher {self.name} belongs to another event loop")
        id = next(self._ids)
        span = trace.get_current_span().get_span_context()
        entry = _Entry[Item, Result](item, loop.create_future(), contextvars.copy_context(), span)
        if not self._entries:
            self._pulse.work_began()
        self._entries[id] = entry
        try:
            self._admit(id, cost, group, canary)
        except (AffidavitError, ValueError):
            del self._entries[id]
            raise
        code = "FAILED"
        try:
            result = await entry.answer
            code = "OK"
            return result
        except asyncio.CancelledError:
            code = "CANCELLED"
            self._withdraw(id)  # an item in an engine stays unfinished work until its batch is
            raise
        finally:
            metrics.items.labels(self.name, code).inc()

    def configure(
        self,
        *,
        max_batch: int | None = None,
        max_wait_us: int | None = None,
        sigma: float | None = None,
        hold_us: int | None = None,
    ) -> None:
        """Change scheduling settings while running; what is not given stays.

        Raises:
            ValueError: one is out of range.
        """
        self._scheduler.configure(max_batch=max_batch, max_wait_us=max_wait_us, sigma=sigma, hold_us=hold_us)

    def health(self) -> BatchHealth:
        return self._pulse.read(unfinished=len(self._entries))

    def stats(self) -> SchedulerStats:
        """The scheduler's counters: batches, their sizes, depth, cancelled, rejected."""
        return self._scheduler.stats()

    async def close(self, *, drain: bool = True, deadline_s: float = 10.0) -> None:
        """Stop. With `drain`, what waits still runs; without, or after the deadline, it fails with DRAINING.

        An engine call that outlives the deadline is left to its daemon thread; its items have failed.
        """
        self._scheduler.close()
        if not drain:
            self._fail_unfinished(waiting_only=True)
        until = time.monotonic() + deadline_s
        for thread in self._threads:
            await asyncio.to_thread(thread.join, max(0.0, until - time.monotonic()))
        self._fail_unfinished(waiting_only=False)

    def _admit(self, id: int, cost: float, group: int, canary: bool) -> None:
        admission = self._scheduler.submit(id, cost, group, canary=canary)
        if admission is Admission.CLOSED:
            raise AffidavitError("DRAINING", f"{self.name} is shutting down; try again")
        if admission is Admission.FULL:
            metrics.items.labels(self.name, "FULL").inc()
            raise AffidavitError("QUEUE_FULL", f"{self.name} has as much work as may wait; try again")

    def _withdraw(self, id: int) -> bool:
        """Take an item out of the queue; False when an engine thread has it."""
        waited = self._scheduler.cancel(id)
        if waited:
            del self._entries[id]
        return waited

    def _fail_unfinished(self, *, waiting_only: bool) -> None:
        for id, entry in list(self._entries.items()):
            if (self._withdraw(id) or not waiting_only) and not entry.answer.done():
                entry.answer.set_exception(AffidavitError("DRAINING", f"{self.name} is shutting down; try again"))

    def _run(self) -> None:
        """An engine thread: batches, until the scheduler is closed and empty."""
        while True:
            batch = self._scheduler.next_batch(_LOOK_UP_S)
            if batch is not None:
                self._answer(batch)
            elif self._scheduler.closed:
                return

    def _answer(self, batch: Batch) -> None:
        entries = [self._entries[id] for id in batch.ids]
        metrics.size.labels(self.name).observe(len(entries))
        for waited in batch.queue_us:
            metrics.queue_seconds.labels(self.name).observe(waited / 1e6)
        begin = time.perf_counter()
        outcome: Sequence[Result] | BaseException
        try:
            outcome = entries[0].context.run(self._call, entries)
        except BaseException as error:  # whatever it is: the items must not wait for ever
            outcome = error
        seconds = time.perf_counter() - begin
        metrics.engine_seconds.labels(self.name).observe(seconds)
        self._pulse.batch_finished(seconds)
        assert self._loop is not None  # set before the first item could be here
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver, batch.ids, outcome)

    def _call(self, entries: list[_Entry[Item, Result]]) -> Sequence[Result]:
        links = [trace.Link(entry.span) for entry in entries if entry.span.is_valid]
        with _tracer.start_as_current_span(f"batch {self.name}", links=links) as span:
            span.set_attribute("affidavit.batch.size", len(entries))
            results = self._engine([entry.item for entry in entries])
        if len(results) != len(entries):
            raise RuntimeError(f"engine {self.name} answered {len(results)} results for {len(entries)} items")
        return results

    def _deliver(self, ids: list[int], outcome: Sequence[Result] | BaseException) -> None:
        """On the loop, once a batch: a wake-up an item would cost more than a small engine call."""
        entries = [self._entries.pop(id) for id in ids]
        if isinstance(outcome, BaseException):
            _log.error("batch_failed", model=self.name, size=len(entries), exc_info=outcome)
        for index, entry in enumerate(entries):
            if entry.answer.done():  # cancelled meanwhile
                continue
            if isinstance(outcome, BaseException):
                entry.answer.set_exception(self._failure(outcome))
            else:
                entry.answer.set_result(outcome[index])

    def _failure(self, error: BaseException) -> AffidavitError:
        """One exception an item: a shared one would collect every awaiter's traceback."""
        if isinstance(error, AffidavitError):
            failure = AffidavitError(error.reason, error.message, field=error.field)
        else:
            failure = AffidavitError("ENGINE_FAILED", f"engine {self.name} failed: {type(error).__name__}")
        failure.__cause__ = error
        return failure
