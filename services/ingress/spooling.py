"""Records when the log is down, by the operator's choice: into the spool, and from there into the log, in order.

While the spool holds anything, every new record goes behind it, so that the log gets them in the order in which the
answers were given. A spooled record's receipt says `spooled` and carries no proof; the record in the log says so too.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, TypeVar

from prometheus_client import Counter, Gauge

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.draft import check_draft
from affidavit.libs.telemetry import get_logger
from affidavit.services.ingress.appender import Appends
from affidavit.services.ingress.spool import PROVISIONAL, Spool, Spooled, resolved

T = TypeVar("T")
# What the log answers while it is down; anything else is about the record, and is the caller's to hear.
DOWN = frozenset({"LOG_UNAVAILABLE", "STORAGE_FULL", "DRAINING", "SERVICE_UNAVAILABLE"})
RETRY_S = (0.5, 1.0, 2.0, 5.0)
REMEMBERED = 100_000  # indices of drained records, for calls that are under way and refer to them
DRAIN_BATCH = 256
_log = get_logger("spool")
_waiting = Gauge("affidavit_ingress_spooled_records", "Records that wait in the spool for the log")
_drained = Counter("affidavit_ingress_drained_records_total", "Spooled records that reached the log")


class _Place(NamedTuple):
    item: audit_pb2.AppendItem
    answer: asyncio.Future[Spooled]


class SpoolingAppender:
    """An Appender that answers also while the log is down."""

    def __init__(self, appender: Appends, spool: Spool, *, closed: bool = False) -> None:
        """Made in the event loop; begins to drain what an earlier life left.

        Args:
            closed: take nothing new: only bring into the log what is there.
        """
        self._closed = closed
        self._appender = appender
        self._spool = spool
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._places: list[_Place] = []  # for the next group that one sync makes durable
        self._writing: asyncio.Task[None] | None = None
        self._indices: OrderedDict[int, int] = OrderedDict()
        self._draining: asyncio.Task[None] | None = None
        _waiting.set(spool.count)
        if spool.count:
            self._drain_soon()

    @property
    def spooling(self) -> bool:
        """Whether records go to the spool now."""
        return self._draining is not None

    async def append(
        self, step: str, draft: evidence_pb2.RecordDraft, *, salt: bytes, content_digest: bytes
    ) -> evidence_pb2.Receipt:
        """The record's receipt: with its proof, or (while the log is down) saying `spooled`.

        Raises:
            AffidavitError: neither log nor spool takes it, or the log refused the record itself.
        """
        if self._closed or not self.spooling:
            try:
                real = resolved(draft, self._indices)
                return await self._appender.append(step, real, salt=salt, content_digest=content_digest)
            except AffidavitError as error:
                if self._closed or error.reason not in DOWN:
                    raise
                if not self.spooling:
                    _log.warning("spooling", reason=error.reason, message=error.message)
        check_draft(draft, salt)  # what the log would refuse must not stand in the spool, in the way of the others
        item = audit_pb2.AppendItem(step=step, content_digest=content_digest, draft=draft, salt=salt)
        item.draft.spooled = True
        spooled = await self._put(item)
        receipt = evidence_pb2.Receipt(index=PROVISIONAL + spooled.number, salt=salt)
        receipt.spooled.entry_sha256 = spooled.sha256
        receipt.spooled.step = step
        return receipt

    async def close(self) -> None:
        """Stop draining; what waits is drained by the next life."""
        for task in (self._draining, self._writing):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, AffidavitError):
                    await task
        await self._appender.close()
        self._thread.shutdown()
        self._spool.close()

    async def _put(self, item: audit_pb2.AppendItem) -> Spooled:
        answer: asyncio.Future[Spooled] = asyncio.get_running_loop().create_future()
        self._places.append(_Place(item, answer))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="spool-write")
        self._drain_soon()
        return await answer

    async def _write(self) -> None:
        """Sync groups until none waits: while one is synced, the next gathers."""
        while self._places:
            places, self._places = self._places, []
            items = [place.item for place in places]
            for item in items:
                # What was drained before this is told now: the next life does not know it any more.
                item.draft.CopyFrom(resolved(item.draft, self._indices, all_known=False))
            try:
                spooled = await self._on_thread(lambda items=items: self._spool.append(items))
            except AffidavitError as error:
                for place in places:
                    if not place.answer.done():
                        place.answer.set_exception(error)
                continue
            _waiting.set(self._spool.count)
            for place, entry in zip(places, spooled, strict=True):
                if not place.answer.done():
                    place.answer.set_result(entry)
        self._writing = None

    def _drain_soon(self) -> None:
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain(), name="spool-drain")

    async def _drain(self) -> None:
        """Bring all that waits into the log, in order; ends when nothing waits any more."""
        done, failures = 0, 0
        while True:
            if self._writing is not None:
                await asyncio.wait({self._writing})
                continue
            try:
                if done == self._spool.count:
                    self._spool.clear()  # on this thread: nothing is awaited, so no record comes in between
                    break
                items = await self._on_thread(lambda skip=done: self._next(skip))
                for item in items:
                    await self._into_log(item)
                    done += 1
            except AffidavitError as error:
                if error.reason not in DOWN:
                    _log.error("spool_stuck", entry=done, reason=error.reason, message=error.message)
                await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1
            else:
                failures = 0
        self._draining = None
        _waiting.set(0)
        if done:
            _log.info("spool_drained", records=done)

    def _next(self, skip: int) -> list[audit_pb2.AppendItem]:
        return list(islice(self._spool.entries(skip), DRAIN_BATCH))

    async def _into_log(self, item: audit_pb2.AppendItem) -> None:
        draft = resolved(item.draft, self._indices)
        try:
            receipt = await self._appender.append(item.step, draft, salt=item.salt, content_digest=item.content_digest)
        except AffidavitError as error:
            if error.reason != "IDEMPOTENCY_CONFLICT":
                raise
            # The key had another content, which nobody could know while the log was down. The answer was given: it is
            # recorded, under a step of its own.
            step = f"{item.step[:100]}/spooled/{item.sequence}"
            receipt = await self._appender.append(step, draft, salt=item.salt, content_digest=item.content_digest)
            _log.warning("spooled_under_another_step", request_id=draft.request_id, step=step)
        self._indices[item.sequence] = receipt.index
        if len(self._indices) > REMEMBERED:
            self._indices.popitem(last=False)
        _drained.inc()

    async def _on_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
