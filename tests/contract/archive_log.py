"""A log in this process with its archive, and faults to put between them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

from affidavit.libs.evidence.note import Verifier
from affidavit.services.audit.append_stream import entry_of
from affidavit.services.audit.archive.archiving import Archiving, Rules
from affidavit.services.audit.archive.elsewhere import from_archive
from affidavit.services.audit.archive.namedfiles import NamedFiles
from affidavit.services.audit.archive.objects import Copy, Kept, ObjectStore
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import LogFolders
from tests.contract.audit_process import AuditProcess, item

RETENTION = timedelta(days=180)


class ArchivedLog:
    """A log of `count` records and an archive of segments of at most 16."""

    def __init__(self, home: Path, objects: ObjectStore, models: Path, records: int = 16) -> None:
        self.home, self.objects = home, objects
        self.log = EvidenceLog(LogFolders.below(home), from_archive(lambda: self.objects))
        self._models, self._records = models, records
        self.retention = RETENTION
        self._closed = False

    def close(self) -> None:
        """A second time is nothing."""
        if not self._closed:
            self._closed = True
            self.log.close()

    def append(self, first: int, last: int, **fields) -> None:
        outcomes = self.log.append([entry_of(item(f"r-{n}", **fields)) for n in range(first, last + 1)])
        assert [outcome.index for outcome in outcomes] == list(range(first, last + 1))

    @property
    def verifiers(self) -> Callable[[str], list[Verifier]]:
        return lambda origin: [Verifier(origin, AuditProcess.key_of(self.home))]

    @asynccontextmanager
    async def archiving(self) -> AsyncIterator[Archiving]:
        async def on_writer(call: Callable[[], None]) -> None:
            call()

        rules = Rules(self.retention, self._records, None)
        named = NamedFiles(self._models, self.home / "keys", self.home / "models")
        archiving = Archiving(
            self.log, lambda: self.objects, named, rules, on_writer, lambda: self.verifiers(self.log.head.tree.origin)
        )
        task = asyncio.create_task(archiving.run(None))
        try:
            yield archiving
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def archive(self) -> int:
        async with self.archiving() as archiving:
            return await archiving.archive()

    async def release(self) -> int:
        async with self.archiving() as archiving:
            return await archiving.release(timedelta())


class FaultyStore:
    """An object store, with a fault between it and its user: dies after so many puts, or changes bytes on the way."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        dies_after: int | None = None,
        putting: Callable[[str, bytes], bytes] = lambda key, data: data,
        reading: Callable[[str, bytes], bytes] = lambda key, data: data,
    ) -> None:
        self._inner, self._putting, self._reading = inner, putting, reading
        self._left = dies_after
        self.put_bytes: dict[str, bytes] = {}

    @property
    def place(self) -> str:
        return self._inner.place

    def check(self) -> None:
        self._inner.check()

    def put(self, key: str, data: bytes, retain_until: datetime) -> None:
        if self._left is not None:
            if not self._left:
                raise ConnectionResetError("cut short")
            self._left -= 1
        self.put_bytes[key] = data
        self._inner.put(key, self._putting(key, data), retain_until)

    def copies(self, key: str) -> list[Copy]:
        return self._inner.copies(key)

    def read(self, copy: Copy) -> Kept:
        kept = self._inner.read(copy)
        return Kept(self._reading(copy.key, kept.data), kept.retain_until)

    def extend(self, copy: Copy, retain_until: datetime) -> None:
        self._inner.extend(copy, retain_until)

    def keys(self, prefix: str) -> Iterator[str]:
        return self._inner.keys(prefix)
