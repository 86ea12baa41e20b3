"""The evidence spool: records that wait for the log on this machine's disk, synced, chained, in order.

One file, a line an entry: RFC 8785 JSON `{content_digest, draft, n, prev, salt, step, v}`, bytes in base64, `prev` the
SHA-256 of the line before (with its newline; zeros for the first). A changed, missing or moved line breaks the chain. A
last line without its newline is a torn write that nobody was told of, and is dropped.

Until a record is in the log it has a provisional number, PROVISIONAL + its `n`. Other records may refer to it by that
number (`resolved` puts the real index in its place). Numbers go on when the spool has been emptied.
"""

import base64
import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.durablefile import sync_folder
from affidavit.libs.evidence.members import Members

PROVISIONAL = 1 << 63
VERSION = 1
NAME = "records"
_FIRST_PREV = "0" * 64
_MEMBERS = frozenset({"content_digest", "draft", "n", "prev", "salt", "step", "v"})


@dataclass(frozen=True)
class Spooled:
    """An entry's place in the spool."""

    number: int  # its `n`
    sha256: bytes  # of its line


class Spool:
    """The one spool of this process; `append`, `entries` and `clear` belong to one thread at a time."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Open or make the spool in `folder` and check its chain.

        Raises:
            AffidavitError: LOG_UNAVAILABLE: another process has it, or the disk refuses. LOG_DAMAGED: the chain is broken.
        """
        self._path = folder / NAME
        self._max_bytes = max_bytes
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise AffidavitError("LOG_UNAVAILABLE", f"the spool {self._path} cannot be opened: {error}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sync_folder(folder)
            first: int | None = None
            self._prev, self._count, self._size = _FIRST_PREV, 0, 0
            for line, item in self._lines():
                first = item.sequence if first is None else first
                self._prev, self._count = hashlib.sha256(line).hexdigest(), self._count + 1
                self._size += len(line)
            os.ftruncate(self._descriptor, self._size)  # a torn last line
            os.fsync(self._descriptor)
        except BlockingIOError:
            os.close(self._descriptor)
            raise AffidavitError("LOG_UNAVAILABLE", f"the spool {self._path} is in use by another process") from None
        except BaseException:
            os.close(self._descriptor)
            raise
        self._first = first or 0
        self._failed = False

    @property
    def first(self) -> int:
        """Number of the first entry, there or to come."""
        return self._first

    @property
    def count(self) -> int:
        """Records that wait."""
        return self._count

    def append(self, items: Sequence[audit_pb2.AppendItem]) -> list[Spooled]:
        """Make items durable, all or none.

        Raises:
            AffidavitError: STORAGE_FULL: the spool or its disk is full. LOG_UNAVAILABLE: the disk refuses.
        """
        if self._failed:  # after a failed sync nobody knows what is on the disk: read it anew, at the next start
            raise AffidavitError("LOG_UNAVAILABLE", f"the spool {self._path} failed before; restart the service")
        lines: list[bytes] = []
        spooled: list[Spooled] = []
        prev = self._prev
        for number, item in enumerate(items, self.first + self._count):
            lines.append(_line(item, number, prev))
            prev = hashlib.sha256(lines[-1]).hexdigest()
            spooled.append(Spooled(number, bytes.fromhex(prev)))
        data = b"".join(lines)
        if self._size + len(data) > self._max_bytes:
            message = f"the spool {self._path} has {self._size} bytes and room for {self._max_bytes}; mend the log"
            raise AffidavitError("STORAGE_FULL", message)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], self._size + written)
            os.fsync(self._descriptor)
        except OSError as error:
            self._failed = True
            raise AffidavitError("LOG_UNAVAILABLE", f"the spool {self._path} takes no record: {error}") from None
        self._prev, self._count, self._size = prev, self._count + len(items), self._size + len(data)
        return spooled

    def entries(self, skip: int = 0) -> Iterator[audit_pb2.AppendItem]:
        """The items after the first `skip`, in order; an item's `sequence` is its number.

        Raises:
            AffidavitError: LOG_DAMAGED.
        """
        for _, item in islice(self._lines(), skip, None):
            yield item

    def clear(self) -> None:
        """Every record is in the log: forget them.

        Raises:
            AffidavitError: LOG_UNAVAILABLE.
        """
        try:
            os.ftruncate(self._descriptor, 0)
            os.fsync(self._descriptor)
        except OSError as error:
            self._failed = True
            raise AffidavitError("LOG_UNAVAILABLE", f"the spool {self._path} cannot be emptied: {error}") from None
        self._first += self._count
        self._prev, self._count, self._size = _FIRST_PREV, 0, 0

    def close(self) -> None:
        os.close(self._descriptor)

    def _lines(self) -> Iterator[tuple[bytes, audit_pb2.AppendItem]]:
        prev, number = _FIRST_PREV, None
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            for place, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    item = _item(line, number, prev)
                except ValueError as error:
                    message = (
                        f"the spool {self._path} was changed at line {place}: {error}; "
                        "keep the file, move it away, and restart"
                    )
                    raise AffidavitError("LOG_DAMAGED", message) from None
                yield line, item
                prev, number = hashlib.sha256(line).hexdigest(), item.sequence + 1


def resolved(
    draft: evidence_pb2.RecordDraft, indices: Mapping[int, int], *, all_known: bool = True
) -> evidence_pb2.RecordDraft:
    """A copy of `draft` in which provisional numbers have become log indices.

    Args:
        indices: number of a spooled record to its index in the log.
        all_known: False leaves the numbers that `indices` does not know as they are.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: it refers to a record that is not in the log yet.
    """

    def index(number: int) -> int:
        if number < PROVISIONAL:
            return number
        real = indices.get(number - PROVISIONAL)
        if real is None and all_known:
            raise AffidavitError("LOG_UNAVAILABLE", "a record that this one refers to is not in the log yet")
        return number if real is None else real

    copy = evidence_pb2.RecordDraft()
    copy.CopyFrom(draft)
    for name in ("parent_index", "environment_index", "reused_from"):
        if draft.HasField(name):  # type: ignore[arg-type]
            setattr(copy, name, index(getattr(draft, name)))
    if draft.children and draft.children[-1].last >= PROVISIONAL:
        del copy.children[:]
        for real in sorted(index(n) for part in draft.children for n in range(part.first, part.last + 1)):
            if copy.children and copy.children[-1].last == real - 1:
                copy.children[-1].last = real
            else:
                copy.children.add(first=real, last=real)
    return copy


def _line(item: audit_pb2.AppendItem, number: int, prev: str) -> bytes:
    entry: dict[str, canonicaljson.Json] = {
        "content_digest": _text(item.content_digest),
        "draft": _text(item.draft.SerializeToString(deterministic=True)),
        "n": number,
        "prev": prev,
        "salt": _text(item.salt),
        "step": item.step,
        "v": VERSION,
    }
    return canonicaljson.dumps(entry) + b"\n"


def _item(line: bytes, number: int | None, prev: str) -> audit_pb2.AppendItem:
    """Raises ValueError: the line is not what was written at this place after this line."""
    entry = Members(canonicaljson.loads(line[:-1]), _MEMBERS, frozenset())
    n = entry.value("n")
    if entry.value("v") != VERSION or not isinstance(n, int):
        raise ValueError("it is no entry of this version")
    if entry.text("prev") != prev or number not in (None, n):
        raise ValueError("it does not follow the line before")
    try:
        draft = evidence_pb2.RecordDraft.FromString(_bytes(entry.text("draft")))
    except Exception as error:  # protobuf's DecodeError, which differs between its implementations
        raise ValueError(f"no record: {error}") from None
    return audit_pb2.AppendItem(
        sequence=n,
        step=entry.text("step"),
        content_digest=_bytes(entry.text("content_digest")),
        draft=draft,
        salt=_bytes(entry.text("salt")),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
