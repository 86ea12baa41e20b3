"""When the log is archived and released: one job at a time, on a schedule or as asked.

Archive: everything under the head, segment by segment; each is noted only when it was read back whole. Release: leaves
of segments that are old enough, after reading them back again; never of the newest records, which every start reads.
The log is written on its writer thread alone, the archive is spoken to on worker threads: appending waits for neither.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.note import Verifier
from affidavit.libs.evidence.record import parse_leaf
from affidavit.libs.evidence.segment import Manifest
from affidavit.libs.telemetry import get_logger
from affidavit.services.audit import metrics
from affidavit.services.audit.archive import segments
from affidavit.services.audit.archive.ledger import Archived
from affidavit.services.audit.archive.namedfiles import NamedFiles
from affidavit.services.audit.archive.objects import ObjectStore
from affidavit.services.audit.head import SignedHead
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import CHECKED_RECORDS

T = TypeVar("T")
_WAITING = 16  # jobs that wait for their turn
_log = get_logger("archiving")

OnWriter = Callable[[Callable[[], None]], Awaitable[None]]
Progress = Callable[[int, int], None]  # records done, records to do


@dataclass(frozen=True)
class Rules:
    """What is archived and released when.

    Attributes:
        retention: from a segment's newest record on.
        records: in a segment, at most.
        keep_local: leaves of newer records are not released by the schedule; None: none are.
    """

    retention: timedelta
    records: int
    keep_local: timedelta | None


class Archiving:
    """Owner of the archive's jobs; `run` does them."""

    def __init__(
        self,
        log: EvidenceLog,
        objects: Callable[[], ObjectStore],
        named: NamedFiles,
        rules: Rules,
        on_writer: OnWriter,
        verifiers: Callable[[], list[Verifier]],
    ) -> None:
        """`objects` opens the archive; it is called when there is something to do. `verifiers` are the log's keys."""
        self._log = log
        self._objects = objects
        self._named = named
        self._rules = rules
        self._on_writer = on_writer
        self._verifiers = verifiers
        self._jobs: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(_WAITING)
        self._show()

    async def run(self, interval_s: float | None) -> None:
        """Do jobs as they are asked, and archive and release every `interval_s` seconds; None: only as asked."""
        while True:
            try:
                async with asyncio.timeout(interval_s):
                    job = await self._jobs.get()
            except TimeoutError:
                job = self._scheduled
            await job()

    async def archive(self, progress: Progress = lambda done, total: None) -> int:
        """Archive everything under the head; the number of records that were.

        Raises:
            AffidavitError: INVALID_OPTION: the archive is none. SERVICE_UNAVAILABLE: it does not answer, or has another
                time. HASH_MISMATCH: what was read back is not what was written. QUEUE_FULL: too many jobs wait.
        """
        return await self._ask(lambda: self._archive(progress))

    async def release(self, keep_local: timedelta, progress: Progress = lambda done, total: None) -> int:
        """Release what is archived and older than `keep_local`; the number of records that were. Raises as `archive`."""
        return await self._ask(lambda: self._release(keep_local, progress))

    async def _ask(self, job: Callable[[], Awaitable[T]]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            if answer.done():  # who asked has gone
                return
            try:
                done = await job()
            except Exception as error:
                _failed(error)
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(done)

        try:
            self._jobs.put_nowait(work)
        except asyncio.QueueFull:
            raise AffidavitError("QUEUE_FULL", f"{_WAITING} jobs wait for the archive already") from None
        return await answer

    async def _scheduled(self) -> None:
        try:
            await self._archive(lambda done, total: None)
            if self._rules.keep_local is not None:
                await self._release(self._rules.keep_local, lambda done, total: None)
        except Exception as error:  # the log goes on without its archive; the next pass tries again
            _failed(error)

    async def _archive(self, progress: Progress) -> int:
        objects = await asyncio.to_thread(self._objects)
        await asyncio.to_thread(objects.check)
        begin, head = self._log.ledger.size, self._log.head
        while self._log.ledger.size < head.tree.size:
            manifest = await asyncio.to_thread(segments.find_whole, objects, self._log.ledger.size)
            if manifest is None:
                await self._write(objects, head)
                manifest = await asyncio.to_thread(segments.find_whole, objects, self._log.ledger.size)
            if manifest is None:
                raise AffidavitError("HASH_MISMATCH", f"{objects.place} does not have the manifest that was written")
            self._check_ours(manifest.origin, manifest.previous, manifest.last, objects)
            archived = await asyncio.to_thread(self._read_back, objects, manifest)
            await self._on_writer(lambda archived=archived: self._log.note_archived(archived))
            for name in manifest.missing:
                _log.warning("named_file_missing", what=name, first=manifest.first, last=manifest.last)
            self._show()
            progress(self._log.ledger.size - begin, head.tree.size - begin)
        return self._log.ledger.size - begin

    async def _write(self, objects: ObjectStore, head: SignedHead) -> None:
        # All segments of a pass under one checkpoint: the last of them ends where it does.
        planned = self._log.ledger.planned()
        if planned is None or planned.first != self._log.ledger.size:
            planned = await asyncio.to_thread(
                segments.plan, self._log, head, self._rules.records, self._rules.retention
            )
            await self._on_writer(lambda planned=planned: self._log.plan_segment(planned))
        segment = await asyncio.to_thread(segments.build, self._log, planned, self._named)
        await asyncio.to_thread(segments.write, objects, segment)

    def _check_ours(self, origin: str, previous: bytes | None, last: int, objects: ObjectStore) -> None:
        known = self._log.ledger.segments
        if origin != self._log.head.tree.origin:
            message = f"the archive {objects.place} is of log {origin}; give each log a folder or prefix of its own"
            raise AffidavitError("INVALID_OPTION", message, field="archive")
        if previous != (known[-1].manifest if known else None) or last >= self._log.head.tree.size:
            message = (
                f"the archive {objects.place} goes on otherwise than this log after record {self._log.ledger.size - 1}: "
                "it was written from a later or another copy of the log; restore that one, or name another archive"
            )
            raise AffidavitError("INVALID_OPTION", message, field="archive")

    def _read_back(self, objects: ObjectStore, manifest: Manifest) -> Archived:
        """The segment as it is to be remembered. It proves itself; that its records are this log's is seen here too, for
        a segment that was found there."""
        whole = segments.read_whole(objects, manifest, self._verifiers())
        for index, leaf in enumerate(whole.leaves, manifest.first):
            if leaf != self._log.leaf(index):
                message = f"{objects.place}: record {index} is not this log's: another past"
                raise AffidavitError("HASH_MISMATCH", f"{message}; affidavit audit fsck says which is right")
        return whole.noted

    async def _release(self, keep_local: timedelta, progress: Progress) -> int:
        now = datetime.now(UTC)
        newest_kept = self._log.head.tree.size - CHECKED_RECORDS
        due = [
            segment
            for segment in self._log.ledger.segments
            if not segment.released and segment.last < newest_kept and segment.newest_time <= now - keep_local
        ]
        if not due:
            return 0
        objects = await asyncio.to_thread(self._objects)
        await asyncio.to_thread(objects.check)
        done, total = 0, sum(len(segment.indices) for segment in due)
        for segment in due:
            if segment.retain_until <= now:
                message = f"records {segment.first} to {segment.last} may be erased from the archive since "
                message += f"{segment.retain_until:%FT%TZ}: they are not released"
                raise AffidavitError("INVALID_OPTION", message)
            await asyncio.to_thread(segments.read_again, objects, segment, self._verifiers())
            await self._on_writer(lambda segment=segment: self._log.release(segment))
            done += len(segment.indices)
            self._show()
            progress(done, total)
        _log.info("released", records=done)
        return done

    def _show(self) -> None:
        ledger = self._log.ledger
        metrics.archived_leaves.set(ledger.size)
        metrics.released_leaves.set(sum(len(segment.indices) for segment in ledger.segments if segment.released))
        oldest = parse_leaf(self._log.leaf(ledger.size)).time if ledger.size < self._log.head.tree.size else None
        metrics.unarchived_time.set(oldest.timestamp() if oldest else 0)


async def progress_of(job: Callable[[Progress], Awaitable[int]]) -> AsyncIterator[tuple[int, int]]:
    """How far a job of `Archiving` is, as (records done, records to do), the last with both the same; raises what it raises."""
    steps: asyncio.Queue[tuple[int, int] | None] = asyncio.Queue()

    async def work() -> int:
        try:
            return await job(lambda done, total: steps.put_nowait((done, total)))
        finally:
            steps.put_nowait(None)

    task = asyncio.create_task(work(), name="archive-job")
    try:
        while (step := await steps.get()) is not None:
            yield step
        done = await task
        yield done, done
    finally:
        task.cancel()


def _failed(error: Exception) -> None:
    reason = error.reason if isinstance(error, AffidavitError) else "INTERNAL"
    metrics.archive_failures.labels(reason).inc()
    if isinstance(error, AffidavitError | OSError):
        _log.error("archiving_failed", reason=reason, message=str(error))
    else:
        _log.error("archiving_failed", reason=reason, exc_info=error)
