"""The published log: C2SP tiles and the checkpoint, written behind the commits from the store.

The store is the one source of truth; what is here is derived and may be deleted at any time: the next start writes it
again. The checkpoint is replaced last, after everything that it covers is synced, so that a reader of the folder (or of
any static file server over it) never meets a checkpoint whose tiles are not there.

Receipts do not wait for this: their proofs come from the store.
"""

import asyncio
import shutil
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.durablefile import make_folder, replace_file
from affidavit.libs.evidence.epoch import epoch_of
from affidavit.libs.evidence.note import NoteError, TreeHead
from affidavit.libs.evidence.tilepaths import (
    CHECKPOINT,
    TILE_HEIGHT,
    TILE_WIDTH,
    entries_path,
    tile_levels,
    tile_path,
    tile_widths,
)
from affidavit.libs.evidence.tiles import bundle_bytes
from affidavit.libs.telemetry import get_logger
from affidavit.services.audit import metrics
from affidavit.services.audit.head import SignedHead
from affidavit.services.audit.log import EvidenceLog

_log = get_logger("publisher")


class Published:
    """The folder, and how much of the log stands in it. One thread writes at a time."""

    def __init__(self, log: EvidenceLog, folder: Path) -> None:
        """Compare what was published with the log.

        Raises:
            AffidavitError: LOG_DAMAGED: more was published than the log has, or another past: the log was rolled back.
        """
        self._log = log
        self._folder = folder
        self._size = 0  # of what this process knows to be there whole
        head = self._head()
        if head is None:
            return
        what = f"the checkpoint published in {folder}"
        if head.origin != log.head.tree.origin:
            message = f"{what} is of log {head.origin}; this log is {log.head.tree.origin}: give each its own folder"
            raise AffidavitError("LOG_DAMAGED", message)
        if epoch_of(head) > epoch_of(log.head.tree):
            raise AffidavitError("LOG_FENCED", f"{what} {_taken_over(head)}")
        if head.size > log.head.tree.size:
            message = (
                f"{what} covers {head.size} records, the log has {log.head.tree.size}: an earlier copy was put in its "
                "place; restore the newest, store and head"
            )
            raise AffidavitError("LOG_DAMAGED", message)
        if log.root(head.size) != head.root:
            message = f"{what} has another root for {head.size} records than the log: another past was put in its place"
            raise AffidavitError("LOG_DAMAGED", f"{message}; restore the log that was published")

    @property
    def folder(self) -> Path:
        """Where the published log stands."""
        return self._folder

    @property
    def size(self) -> int:
        """Records that this process knows to be published whole."""
        return self._size

    def publish(self, head: SignedHead) -> int:
        """Write what `head` covers and is not there yet; how many files were written.

        Raises:
            AffidavitError: LOG_DAMAGED: the store lacks something. OSError: the disk refuses.
        """
        size, written = head.tree.size, 0
        other = self._head()
        if other is not None and epoch_of(other) > epoch_of(head.tree):
            raise AffidavitError("LOG_FENCED", f"the checkpoint published in {self._folder} {_taken_over(other)}")
        for level in tile_levels(size):
            first = self._size >> TILE_HEIGHT * (level + 1)  # full ones before it are there
            widths = tile_widths(level, size)
            for number in range(first, len(widths)):
                written += self._write_tile(level, number, widths[number])
        _write(self._folder / CHECKPOINT, head.note)
        self._delete_partial(size)
        self._size = size
        metrics.published_leaves.set(size)
        return written

    def _write_tile(self, level: int, number: int, width: int) -> int:
        first = number * TILE_WIDTH
        written = 0
        path = self._folder / tile_path(level, number, width)
        if not path.exists():
            _write(path, b"".join(self._log.node(TILE_HEIGHT * level, first + n) for n in range(width)))
            written += 1
        entries = self._folder / entries_path(number, width)
        if level == 0 and not entries.exists():
            _write(entries, bundle_bytes([self._log.leaf(first + n) for n in range(width)]))
            written += 1
        return written

    def _delete_partial(self, size: int) -> None:
        """Partial tiles below the newest full ones: the specification lets them go, and they would fill the disk."""
        for level in tile_levels(size):
            begin, end = self._size >> TILE_HEIGHT * (level + 1), size >> TILE_HEIGHT * (level + 1)
            for number in range(begin, end):
                for path in [tile_path(level, number, 1), *([] if level else [entries_path(number, 1)])]:
                    shutil.rmtree((self._folder / path).parent, ignore_errors=True)

    def _head(self) -> TreeHead | None:
        path = self._folder / CHECKPOINT
        try:
            head = TreeHead.unverified(path.read_bytes())
            epoch_of(head)
            return head
        except FileNotFoundError:
            return None
        except NoteError as error:
            message = f"{path} is no checkpoint: {error}; delete it, and the tiles are written again from the log"
            raise AffidavitError("LOG_DAMAGED", message) from None


def _taken_over(head: TreeHead) -> str:
    return (
        f"is of epoch {epoch_of(head)}, {head.size} records: a standby has taken this log over; send its callers there, "
        "and keep this copy until every receipt that it gave is found in the other"
    )


class Publisher:
    """Publishes each newer head, at most every `interval_s`, until the service stops; the last one by `close`."""

    def __init__(self, log: EvidenceLog, published: Published, interval_s: float) -> None:
        self._log = log
        self._published = published
        self._interval_s = interval_s
        self._newest: SignedHead | None = None
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="publisher")

    async def close(self) -> None:
        """Publish the newest head and stop. The appender must have been closed, the log not yet."""
        self._closing.set()
        await self._task
        await self._publish()

    async def _run(self) -> None:
        while not self._closing.is_set():
            await self._publish()
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._interval_s):
                await self._closing.wait()
        except TimeoutError:
            return

    async def _publish(self) -> None:
        head = self._log.head
        if head == self._newest:
            return
        try:
            await asyncio.to_thread(self._published.publish, head)
        except (AffidavitError, OSError) as error:  # the log goes on without it; the next pass tries again
            metrics.publish_failures.inc()
            if isinstance(error, AffidavitError) and error.reason == "LOG_FENCED":
                self._log.fence(error.message)
            _log.error("publishing_failed", records=head.tree.size, message=str(error))
            return
        self._newest = head


def _write(path: Path, data: bytes) -> None:
    if not path.parent.is_dir():
        make_folder(path.parent)
    replace_file(path, data)
