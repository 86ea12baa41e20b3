"""The background scrub: the whole log is read again, at a bounded pace, for ever.

A start checks the newest records; damage to older ones is met when somebody asks for one, perhaps in years. The scrub
meets it while a backup or the tiles still have them. Each leaf is hashed against its stored hash, each complete subtree
against its children, the tree at the end of a pass against the signed head, and each published tile against the store.

A finding does not stop appending: new records grow from the tree's edge in memory, never from a stored old record, so
refusing them would protect nothing and turn one flipped bit into an outage. The damaged record itself is never given
out. It is loud instead: an error in the service's log that names the record and the way back, a metric, and
`affidavit status` until a pass finds nothing.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.scrubstate import MAX_FINDINGS, ScrubFinding, ScrubState
from affidavit.libs.telemetry import get_logger
from affidavit.services.audit import metrics
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.storecheck import BACKUP
from affidavit.services.audit.tilescrub import TILE_WIDTH, TileScrub

STEP_RECORDS = 64  # about 1 ms of the interpreter lock, which appends need too
_SAVE_RECORDS = 16_384  # at most so much is read again after a crash
_LONGEST_WAIT_S = 1.0  # that appends may hold one step up: the scrub gets on also under load without end
_log = get_logger("scrub")


class Scrub:
    """Passes over `log`. `step` is for one thread at a time; it may be another than the writer's."""

    def __init__(self, log: EvidenceLog, tiles: TileScrub, path: Path) -> None:
        """Go on where `path` says that the last process stopped; another log's place, or a damaged one, counts as none."""
        self._log = log
        self._tiles = tiles
        self._path = path
        self._origin = log.head.tree.origin
        self.state = ScrubState.load(path, self._origin)
        self._saved = self.state.next
        self._end = 0  # of this pass; set by its first step in this process
        self._show()

    async def run(self, per_s: float, interval_s: float, busy: Callable[[], bool]) -> None:
        """Read at most `per_s` records a second, a pass every `interval_s` seconds at most, until cancelled.

        Args:
            busy: whether appends are waiting; a step then waits for them, within a bound.
        """
        while True:
            await asyncio.sleep(self._due(interval_s))
            waited = 0.0
            while busy() and waited < _LONGEST_WAIT_S:
                await asyncio.sleep(0.02)
                waited += 0.02
            try:
                done = await asyncio.to_thread(self.step)
            except OSError as error:  # its place is not kept; what was found is in the log and the metrics
                _log.error("scrub_place_not_kept", error=str(error))
                done = STEP_RECORDS
            await asyncio.sleep(max(done, 1) / per_s)

    def step(self) -> int:
        """Check the next few records; how many.

        Raises:
            OSError: the place could not be kept.
        """
        size = self._log.head.tree.size
        if not self._end:
            self._end = size
        first, stop = self.state.next, min(self.state.next + STEP_RECORDS, self._end)
        for index in range(first, stop):
            self._check_record(index)
            if (index + 1) % TILE_WIDTH == 0:
                self._check_tile(index // TILE_WIDTH)
        self.state = replace(self.state, next=stop)
        metrics.scrubbed.inc(stop - first)
        metrics.scrub_position.set(stop)
        if stop >= self._end:
            self._finish()
        elif stop - self._saved >= _SAVE_RECORDS:
            self.save()
        return stop - first

    def save(self) -> None:
        """Keep the place durably. Raises OSError."""
        self.state.save(self._path)
        self._saved = self.state.next

    def _due(self, interval_s: float) -> float:
        """Seconds until the next step may begin."""
        if self.state.next or not self.state.last_end:
            return 0.0
        return min(interval_s, max(0.0, self.state.last_end + interval_s - time.time()))

    def _check_record(self, index: int) -> None:
        try:
            released = self._log.is_released(index)  # its bytes are the archive's to check
            digest = self._log.node(0, index) if released else merkle.leaf_hash(self._log.leaf(index))
            if digest != self._log.node(0, index):
                self._find("leaf", f"record {index}: its bytes and its hash in the store contradict each other", index)
                return
            level, number = 0, index
            while number & 1:  # the subtrees that this leaf completes
                digest = merkle.node_hash(self._log.node(level, number - 1), digest)
                level, number = level + 1, number >> 1
                stored = self._log.node(level, number)
                if stored != digest:
                    first, last = number << level, ((number + 1) << level) - 1
                    what = f"records {first} to {last}: the stored hash of this subtree is not that of its records"
                    self._find("hash", what, index)
                    return
        except AffidavitError as error:
            self._find("store", error.message, index)

    def _check_tile(self, number: int) -> None:
        if any(number == found.record // TILE_WIDTH for found in self.state.findings):
            return  # the tile may be the good copy
        self._tiles.full(number)

    def _finish(self) -> None:
        """The tree against the signed head, the edge of the published log, and the account of the pass."""
        head = self._log.head
        try:
            if merkle.root(head.tree.size, self._log.node) != head.tree.root:
                self._find("hash", f"the stored hashes do not lead to the signed root of {head.tree.size} records", -1)
        except AffidavitError as error:
            self._find("store", error.message, -1)
        if not self.state.findings:
            self._tiles.edge()
        found, checked = self.state.unlisted + len(self.state.findings), self._end
        self.state = ScrubState(
            origin=self._origin,
            last_end=time.time(),
            last_records=checked,
            last_findings=self.state.findings,
            last_unlisted=self.state.unlisted,
        )
        self._end = 0
        self.save()
        self._show()
        _log.info("scrub_pass_done", records=checked, findings=found, tiles_rewritten=self._tiles.rewritten)

    def _find(self, part: str, what: str, index: int) -> None:
        finding = ScrubFinding(part, what, BACKUP, index)
        if len(self.state.findings) < MAX_FINDINGS:
            self.state = replace(self.state, findings=(*self.state.findings, finding))
        else:
            self.state = replace(self.state, unlisted=self.state.unlisted + 1)
        metrics.scrub_damage.inc()
        metrics.scrub_findings.set(self.state.count)
        _log.error("log_damaged", part=part, what=what, restore=BACKUP)
        self.save()

    def _show(self) -> None:
        metrics.scrub_findings.set(self.state.count)
        metrics.scrub_position.set(self.state.next)
        metrics.scrub_pass_time.set(self.state.last_end)
