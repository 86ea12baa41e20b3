"""Keeps a stack running: start in order, wait for readiness, restart what crashes, drain on stop, leave no orphan."""

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import grpc

from affidavit.libs.rpc import connect, is_serving
from affidavit.libs.runtime import SERVICE_NAMES, DataFolder
from affidavit.tools.stack import stackfile
from affidavit.tools.stack.plan import ServicePlan, StackPlan
from affidavit.tools.stack.stackfile import RunningService, RunningStack

READY_TIMEOUT_S = 120.0
DRAIN_TIMEOUT_S = 15.0
BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
CRASHES_AT_START = 3  # a service that dies so often before it was ever ready will not come up by trying again
# Exit codes that trying again cannot mend: bad settings, and (audit) a damaged log, which a person must look at.
FATAL_EXIT_CODES = frozenset({2, 4})

Report = Callable[[str], None]


class StartFailed(Exception):
    """A service did not become ready; the message says which, why, and where its log is."""


class _Child:
    """One service's process and its restarts."""

    def __init__(self, plan: ServicePlan, log: Path) -> None:
        self.plan = plan
        self.log = log
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.failed = ""
        self.restarts = 0

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    async def run(self, report: Report, changed: Callable[[], None]) -> None:
        """Run the process for ever, again after each crash, until cancelled; then stop it gracefully.

        Returns, with `failed` set, when starting it again is of no use.
        """
        crashes: deque[float] = deque(maxlen=len(BACKOFF_S))
        ever_ready = False
        try:
            while True:
                await self._start()
                changed()
                watch = asyncio.create_task(self._watch_readiness())
                assert self.process
                code = await self.process.wait()
                watch.cancel()
                ever_ready = ever_ready or self.ready.is_set()
                self.ready.clear()
                crashes.append(time.monotonic())
                if code in FATAL_EXIT_CODES or (not ever_ready and len(crashes) >= CRASHES_AT_START):
                    self.failed = _describe(code)
                    report(f"{self.plan.name} ended with {self.failed} and is not started again (log: {self.log})")
                    return
                recent = sum(1 for t in crashes if time.monotonic() - t < 60)
                delay = BACKOFF_S[max(0, recent - 1)]
                report(f"{self.plan.name} ended with {_describe(code)}; starting again in {delay} s (log: {self.log})")
                self.restarts += 1
                await asyncio.sleep(delay)
        finally:
            await self._stop()

    async def _start(self) -> None:
        environment = {
            **os.environ,
            **self.plan.environment,
            "AFFIDAVIT_PARENT_PID": str(os.getpid()),
            "PYTHONUNBUFFERED": "1",
        }
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.plan.command, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )

    async def _watch_readiness(self) -> None:
        while not await is_ready(self.plan.service, self.plan.address):  # noqa: ASYNC110 (another process's state)
            await asyncio.sleep(0.05)
        self.ready.set()

    async def _stop(self) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(DRAIN_TIMEOUT_S):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


class Supervisor:
    """Runs a plan.

    async with Supervisor(plan, data, logs, report=print) as stack:    # all ready
        ...                                                           # stack.address
    """

    def __init__(
        self, plan: StackPlan, data: DataFolder, logs: Path, *, report: Report, private: bool, announced: bool = True
    ) -> None:
        self._plan = plan
        self._data = data
        self._report = report
        self._private = private
        self._announced = announced  # others may join it: it is whole
        self._up = False
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._children = {p.name: _Child(p, logs / f"{p.name}.log") for p in plan.services}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = datetime.now(UTC).isoformat(timespec="seconds")

    async def __aenter__(self) -> RunningStack:
        try:
            for stage in self._plan.stages:
                for service in stage:
                    child = self._children[service.name]
                    self._tasks[service.name] = asyncio.create_task(child.run(self._report, self._changed))
                await asyncio.gather(*(self._wait_ready(service.name) for service in stage))
        except BaseException:
            await self._stop()
            raise
        self._up = True
        self._changed()
        return self.stack

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @property
    def stack(self) -> RunningStack:
        services = [
            RunningService(c.plan.name, c.plan.service, c.plan.address, c.plan.metrics_address, c.pid)
            for c in self._children.values()
        ]
        pid = os.getpid()
        start = stackfile.process_start(pid) or 0
        return RunningStack(pid, start, self._started, str(self._data.root), self._private, services)

    async def _wait_ready(self, name: str) -> None:
        child, task = self._children[name], self._tasks[name]
        ready = asyncio.create_task(child.ready.wait())
        done, _ = await asyncio.wait({ready, task}, timeout=READY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if ready not in done:
            why = child.failed or f"not ready within {READY_TIMEOUT_S:.0f} s"
            raise StartFailed(f"{name} did not start: {why}\n{_tail(child.log)}\nwhole log: {child.log}")

    def _changed(self) -> None:
        if self._up and self._announced:
            stackfile.write(self.stack)

    async def _stop(self) -> None:
        """Drain in the reverse order of the start: the edge first, the log last."""
        if self._up:
            self._up = False
            if self._announced:
                stackfile.remove()
        for stage in reversed(self._plan.stages):
            tasks = [self._tasks[s.name] for s in stage if s.name in self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def is_ready(service: str, address: str, timeout_s: float = 1.0) -> bool:
    """Whether the service at an address says SERVING for its full name."""
    async with connect(address) as channel:
        try:
            return await is_serving(channel, SERVICE_NAMES[service], timeout_s)
        except grpc.aio.AioRpcError:
            return False


def _tail(log: Path, lines: int = 5) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-lines:])


def _describe(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
