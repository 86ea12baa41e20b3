"""The pages that a caller holds: at most `look_ahead` at once, leased in shared memory where that is possible."""

import asyncio
import hashlib
from collections import deque

from affidavit.libs.errors import AffidavitError
from affidavit.libs.pageimages import Lease, LeaseFolder
from affidavit.preprocess.v1 import preprocess_pb2
from affidavit.services.preprocess import metrics

MAX_LOOK_AHEAD = 16
DEFAULT_LOOK_AHEAD = 2


class Window:
    """What the caller has been sent and has not released, and what it asks for.

    One side sends pages and waits for room; the other says what the caller's messages say.
    """

    def __init__(self, leases: LeaseFolder, look_ahead: int, inline_only: bool) -> None:
        """
        Raises:
            AffidavitError: INVALID_OPTION when `look_ahead` is out of range.
        """
        if look_ahead > MAX_LOOK_AHEAD:
            message = f"look_ahead is {look_ahead}; it can be 1 to {MAX_LOOK_AHEAD}"
            raise AffidavitError("INVALID_OPTION", message, field="options.look_ahead")
        self._leases = leases
        self._look_ahead = look_ahead or DEFAULT_LOOK_AHEAD
        self._inline_because = "asked" if inline_only else ""
        # None: sent inline, nothing is kept here.
        self._held: dict[int, preprocess_pb2.RenderedPage | None] = {}
        self._last_sent = 0
        self._resends: deque[int] = deque()
        self._changed = asyncio.Event()
        self._failure: AffidavitError | None = None
        self._half_closed = False

    # What the caller says.

    def release(self, number: int) -> None:
        if not 0 < number <= self._last_sent:
            raise AffidavitError("INVALID_STREAM", f"release of page {number}, which has not been sent")
        self._end_lease(self._held.pop(number, None))
        self._changed.set()

    def resend(self, number: int) -> None:
        if not self._held.get(number):
            raise AffidavitError("INVALID_STREAM", f"resend of page {number}, of which the caller holds no handle")
        self._inline_because = self._inline_because or "resend"
        if number not in self._resends:
            self._resends.append(number)
        self._changed.set()

    def half_close(self) -> None:
        """The caller says nothing more, so it releases nothing more: later pages go inline and need no release."""
        self._half_closed = True
        self._inline_because = self._inline_because or "half_closed"
        self._changed.set()

    def fail(self, error: AffidavitError) -> None:
        """What the caller said cannot be; raised where the pages are sent."""
        self._failure = error
        self._changed.set()

    # What is sent.

    def has_room(self) -> bool:
        """Whether another page may be drawn.

        Raises:
            AffidavitError: INVALID_STREAM when the caller said something that cannot be.
        """
        return self._check() or len(self._held) < self._look_ahead

    def is_empty(self) -> bool:
        """Whether the caller holds nothing any more, or cannot say that it does; raises as `has_room`."""
        return self._check() or not self._held

    async def changed(self, timeout_s: float) -> bool:
        """Wait until the caller has said something; False when it did not in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def next_resend(self) -> preprocess_pb2.RenderedPage | None:
        """A page that the caller cannot open, now inline."""
        while self._resends:
            number = self._resends.popleft()
            page = self._held.get(number)
            if page:
                self._held[number] = None
                name = page.image.handle.name
                page.image.inline = self._leases.read(name)
                self._leases.release(name)
                self._measure()
                metrics.inline.labels("resend").inc()
                return page
        return None

    async def add(self, page: preprocess_pb2.RenderedPage, pixels: memoryview) -> None:
        """Put the pixels into the page, by handle where possible, with their hash; the caller holds it from now on."""
        image = page.image
        lease = None if self._inline_because else await self._lease(pixels)
        if lease:
            image.handle.CopyFrom(lease.handle)
            image.sha256 = lease.sha256
        else:
            metrics.inline.labels(self._inline_because or "no_room").inc()
            image.inline = bytes(pixels)
            image.sha256 = await asyncio.to_thread(lambda: hashlib.sha256(image.inline).digest())
        self._last_sent = image.page_number
        if lease or not self._half_closed:
            self._held[image.page_number] = page if lease else None
        self._measure()

    def skip(self, number: int) -> None:
        """The page was answered without an image."""
        self._last_sent = number

    def close(self) -> None:
        """All leases end."""
        for page in self._held.values():
            self._end_lease(page)
        self._held.clear()

    async def _lease(self, pixels: memoryview) -> Lease | None:
        leasing = asyncio.get_running_loop().run_in_executor(None, self._leases.lease, pixels)
        try:
            return await asyncio.shield(leasing)
        except asyncio.CancelledError:
            leasing.add_done_callback(self._abandon)
            raise

    def _abandon(self, leasing: asyncio.Future[Lease | None]) -> None:
        lease = None if leasing.exception() else leasing.result()
        if lease:
            self._leases.release(lease.handle.name)

    def _check(self) -> bool:
        if self._failure:
            raise self._failure
        return self._half_closed

    def _end_lease(self, page: preprocess_pb2.RenderedPage | None) -> None:
        if page:
            self._leases.release(page.image.handle.name)
            self._measure()

    def _measure(self) -> None:
        metrics.leased_bytes.set(self._leases.leased_bytes())
