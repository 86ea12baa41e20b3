"""One document, in the sandbox: whichever worker it is with at the moment, and with none while its caller is slow.

It is opened again, by a password already known to fit, when its worker has died, or was given back because the caller
kept its pages or because others wait.
"""

import os
import time
from typing import Protocol

from affidavit.libs.errors import AffidavitError
from affidavit.services.preprocess import metrics
from affidavit.services.preprocess.pool import WorkerPool
from affidavit.services.preprocess.process import WorkerFailed, WorkerProcess
from affidavit.services.preprocess.protocol import Draw, Drawn, Open, Opened, Refused
from affidavit.services.preprocess.reasons import document_error
from affidavit.services.preprocess.settings import PreprocessSettings

# Pages on which the parser may die or hang before the document is given up.
MAX_FATAL_PAGES = 8
_REASONS = {"timeout": "PARSER_TIMEOUT", "crashed": "PARSER_CRASHED", "protocol": "PARSER_CRASHED"}


class Source(Protocol):
    """A document's bytes, in a file."""

    def open_read_only(self) -> int: ...


class SandboxedDocument:
    """A document that workers open and draw."""

    def __init__(
        self,
        pool: WorkerPool,
        source: Source,
        passwords: tuple[bytes, ...],
        settings: PreprocessSettings,
        *,
        first: bool = False,
    ) -> None:
        """`first`: go to the head of the line for a worker."""
        self._pool = pool
        self._source = source
        self._passwords = passwords
        self._settings = settings
        self._first = first
        self._worker: WorkerProcess | None = None
        self._spent_s = 0.0
        self._fatal_pages = 0
        self._turn_ends = 0.0
        self._drawn_in_turn = 0

    async def open(self) -> Opened:
        """Open it.

        Raises:
            AffidavitError: it cannot be opened; the reason says why.
        """
        try:
            reply = await self._try_to_open()
        except WorkerFailed as failure:
            if failure.cause != "crashed":
                raise document_error(_REASONS[failure.cause]) from None
            # The worker may have died before it had the document, of a system short of memory: once more.
            try:
                reply = await self._try_to_open()
            except WorkerFailed as again:
                raise document_error(_REASONS[again.cause]) from None
        if isinstance(reply, Refused):
            raise document_error(reply.reason)
        if not isinstance(reply, Opened):
            self._lose("protocol")
            raise document_error("PARSER_CRASHED")
        self._drawn_in_turn = 0
        return reply

    async def draw(self, number: int) -> Drawn | Refused:
        """Draw a page, numbered from 1; its pixels are `pixels(drawn)` until the next call.

        Raises:
            AffidavitError: the whole document is given up.
        """
        while True:
            if self._spent_s > self._settings.document_timeout_s:
                raise document_error("PARSER_TIMEOUT")
            if self._worker and self._drawn_in_turn and self._should_yield(self._worker):
                self.pause()
            try:
                if not self._worker:
                    await self.open()
                assert self._worker
                reply = await self._ask(self._worker, Draw(number - 1))
            except WorkerFailed as failure:
                if failure.cause == "crashed" and self._drawn_in_turn:
                    # The pages before it may have used up the memory: once more, alone.
                    self._drawn_in_turn = 0
                    continue
                return self._fatal(_REASONS[failure.cause])
            except AffidavitError as error:
                if error.reason not in _REASONS.values():
                    raise
                return self._fatal(error.reason)
            self._drawn_in_turn += 1
            if isinstance(reply, Drawn | Refused):
                return reply
            self._lose("protocol")
            return self._fatal("PARSER_CRASHED")

    def pixels(self, drawn: Drawn) -> memoryview:
        """The page's pixels. The worker can still change them: copy before use."""
        assert self._worker
        return self._worker.pixels(drawn.width * drawn.height * drawn.channels)

    def pause(self) -> None:
        """Give the worker back; the next `draw` takes another."""
        worker, self._worker = self._worker, None
        if worker:
            self._pool.give_back(worker)

    close = pause

    async def _try_to_open(self) -> object:
        self._worker = await self._pool.take(first=self._first)
        return await self._ask(self._worker, Open(self._passwords))

    async def _ask(self, worker: WorkerProcess, request: Open | Draw) -> object:
        began = time.monotonic()
        descriptor = self._source.open_read_only() if isinstance(request, Open) else None
        try:
            reply = await worker.ask(request, self._settings.page_timeout_s, descriptor)
        except WorkerFailed as failure:
            self._lose(failure.cause)
            raise
        finally:
            took_s = time.monotonic() - began
            self._spent_s += took_s
            if descriptor is not None:
                os.close(descriptor)
        if descriptor is not None:
            worker.documents += 1
            # A document that is slow to open keeps its worker longer, so that opening stays a small part.
            self._turn_ends = time.monotonic() + max(self._settings.turn_s, 5 * took_s)
        else:
            metrics.page_seconds.observe(took_s)
        return reply

    def _should_yield(self, worker: WorkerProcess) -> bool:
        turn_is_over = self._pool.others_wait and time.monotonic() > self._turn_ends
        return turn_is_over or worker.growth_bytes() > self._settings.worker_growth_bytes

    def _lose(self, cause: str) -> None:
        worker, self._worker = self._worker, None
        if worker:
            self._pool.give_back(worker, failed=cause)

    def _fatal(self, reason: str) -> Refused:
        self._fatal_pages += 1
        if self._fatal_pages > MAX_FATAL_PAGES:
            raise document_error(reason)
        return Refused(reason)
