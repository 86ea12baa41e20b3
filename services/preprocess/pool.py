"""The worker processes: a fixed number of them, warm, each with at most one document, lent in turn.

Who asks for a worker waits in line. A worker that comes back is checked and lent to the first in line, or replaced:
when it is dead, when it has grown, and when it has had its share of documents or time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from affidavit.libs.errors import AffidavitError
from affidavit.libs.telemetry import get_logger
from affidavit.services.preprocess import metrics
from affidavit.services.preprocess.process import WORKER_COMMAND, WorkerFailed, WorkerProcess
from affidavit.services.preprocess.protocol import Close, Closed, Ready
from affidavit.services.preprocess.settings import PreprocessSettings
from affidavit.services.preprocess.worker.sandbox import FEATURES

_log = get_logger("pool")

_START_TIMEOUT_S = 30.0
# What a worker gets to finish when its asker is gone; killing and starting one costs 0.2 s of processor time.
_SETTLE_S = 0.25


class WorkerPool:
    """Owned by one event loop."""

    def __init__(self, settings: PreprocessSettings, command: Sequence[str] = WORKER_COMMAND) -> None:
        self._settings = settings
        self._limits = settings.worker_limits()
        self._command = command
        self._idle: deque[WorkerProcess] = deque()
        self._lent: set[WorkerProcess] = set()
        self._line: deque[asyncio.Future[WorkerProcess]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._facts: Ready | None = None

    async def start(self) -> None:
        """Start all workers; returns when the first is ready."""
        for _ in range(self._settings.worker_count()):
            self._spawn(self._bring_up())
        self.give_back(await self.take(first=True))

    async def take(self, *, first: bool = False) -> WorkerProcess:
        """A worker without a document; give it back with `give_back`.

        Args:
            first: go to the head of the line.

        Raises:
            AffidavitError: QUEUE_FULL when none came free in time, DRAINING when the pool is closed.
        """
        if self._closed:
            raise AffidavitError("DRAINING", "the service is shutting down")
        while self._idle:
            worker = self._idle.popleft()
            if worker.alive:
                self._lent.add(worker)
                return worker
            self._replace(worker, "died_idle")
        place: asyncio.Future[WorkerProcess] = asyncio.get_running_loop().create_future()
        self._line.appendleft(place) if first else self._line.append(place)
        metrics.waiting.set(len(self._line))
        taken = False
        try:
            async with asyncio.timeout(self._settings.queue_timeout_s):
                worker = await place
            taken = True
            return worker
        except TimeoutError:
            message = f"no parser came free within {self._settings.queue_timeout_s:g} s; try again later"
            raise AffidavitError("QUEUE_FULL", message) from None
        finally:
            if place in self._line:
                self._line.remove(place)
            elif not taken and not place.cancelled() and not place.exception():
                self.give_back(place.result())  # lent in the moment in which the asker left
            metrics.waiting.set(len(self._line))

    @property
    def facts(self) -> Ready:
        """Versions and sandbox features, as the first worker told them before it had seen any document."""
        assert self._facts, "start the pool first"
        return self._facts

    @property
    def others_wait(self) -> bool:
        return bool(self._line)

    def give_back(self, worker: WorkerProcess, failed: str = "") -> None:
        """Return a worker, whatever state it is in.

        Args:
            failed: why it was killed, as WorkerFailed.cause; empty when it was not.
        """
        if failed:
            self._lent.discard(worker)
            self._replace(worker, failed)
        else:
            self._spawn(self._settle(worker))

    def progressing(self, within_s: float) -> bool:
        """Whether every worker is lent, and one of them has answered within that time."""
        since = time.monotonic() - within_s
        return not self._idle and any(worker.last_reply > since for worker in self._lent)

    async def close(self) -> None:
        """Kill all workers and wait until they are gone."""
        self._closed = True
        while self._line:
            self._line.popleft().set_exception(AffidavitError("DRAINING", "the service is shutting down"))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        workers = [*self._idle, *self._lent]
        for worker in workers:
            worker.kill()
        await asyncio.gather(*(worker.buried() for worker in workers))
        self._idle.clear()
        self._lent.clear()

    async def _bring_up(self) -> None:
        delay_s = 0.1
        while True:
            worker = None
            try:
                worker = WorkerProcess(self._limits, self._command)
                self._report(await worker.ready(_START_TIMEOUT_S))
                self._lend(worker)
                return
            except (OSError, WorkerFailed) as error:
                _log.error("worker_start_failed", error=str(error), retry_s=delay_s)
            except asyncio.CancelledError:
                if worker:
                    worker.kill()
                    await worker.buried()
                raise
            if worker:
                worker.kill()
                await worker.buried()
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, 10.0)

    async def _settle(self, worker: WorkerProcess) -> None:
        """Make a worker ready for the next document, or replace it."""
        cause = ""
        try:
            if worker.owes_reply:
                await worker.reply(_SETTLE_S)
            if not isinstance(await worker.ask(Close(), self._settings.page_timeout_s), Closed):
                cause = "protocol"
        except WorkerFailed as failure:
            cause = "cancelled" if failure.cause == "timeout" else failure.cause
        if not cause and self._worn(worker):
            cause = "recycled"
        if cause:
            self._lent.discard(worker)
            self._replace(worker, cause)
        else:
            worker.forget_pixels()
            self._lend(worker)

    def _worn(self, worker: WorkerProcess) -> bool:
        return (
            worker.documents >= self._settings.worker_documents
            or worker.busy_s >= self._settings.document_timeout_s
            or worker.growth_bytes() >= self._settings.worker_growth_bytes
        )

    def _lend(self, worker: WorkerProcess) -> None:
        if self._line:
            self._lent.add(worker)
            self._line.popleft().set_result(worker)
        else:
            self._lent.discard(worker)
            self._idle.append(worker)

    def _replace(self, worker: WorkerProcess, cause: str) -> None:
        metrics.restarts.labels(cause).inc()
        _log.info("worker_replaced", pid=worker.pid, cause=cause, documents=worker.documents)
        worker.kill()
        self._spawn(worker.buried())
        if not self._closed:
            self._spawn(self._bring_up())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _report(self, facts: Ready) -> None:
        """Say once which parts of the sandbox the kernel refused."""
        if self._facts:
            return
        self._facts = facts
        for feature in FEATURES:
            metrics.sandbox_features.labels(feature).set(feature in facts.features)
        if missing := [feature for feature in FEATURES if feature not in facts.features]:
            _log.warning("sandbox_incomplete", missing=missing)
