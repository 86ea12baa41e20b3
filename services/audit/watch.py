"""Who waits for a newer head, and the heads that come."""

import asyncio
from collections.abc import AsyncGenerator

from affidavit.libs.errors import AffidavitError
from affidavit.services.audit.head import SignedHead
from affidavit.services.audit.log import EvidenceLog


class HeadWatch:
    """Tells readers when the log's head has moved. Belongs to the event loop."""

    def __init__(self, log: EvidenceLog, draining: asyncio.Event) -> None:
        self._log = log
        self._draining = draining
        self._waiting: set[asyncio.Event] = set()

    def moved(self) -> None:
        """The head is perhaps a newer one."""
        for event in self._waiting:
            event.set()

    async def heads(self) -> AsyncGenerator[SignedHead, None]:
        """The newest head, then each newer one; those that pass while the reader is busy are left out.

        Raises:
            AffidavitError: DRAINING: the service stops.
        """
        event = asyncio.Event()
        self._waiting.add(event)
        drain = asyncio.create_task(self._draining.wait(), name="watch-drain")
        drain.add_done_callback(lambda _: event.set())
        seen = -1
        try:
            while not self._draining.is_set():
                event.clear()
                head = self._log.head
                if head.tree.size > seen:
                    seen = head.tree.size
                    yield head
                else:
                    await event.wait()
            raise AffidavitError("DRAINING", "the audit service is stopping; watch again elsewhere or later")
        finally:
            drain.cancel()
            self._waiting.discard(event)
