"""A span of the log in one file: every record stamped from one time to another, none missing, checked offline.

The file is JSON lines. The first line says what the rest is (`Header`), each other line is one leaf, exactly as it stands
in the log, in index order. Where the log has them, the last record before the span and the first one after it stand in
the file too: since times rise with the index, these two show that the span was not cut short at either end. Without
the neighbour after it, the span is open: the log ended there when the checkpoint was signed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from affidavit.libs import canonicaljson
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.members import Members
from affidavit.libs.evidence.merkle import ProofError
from affidavit.libs.evidence.note import NoteError, TreeHead
from affidavit.libs.evidence.rangeproof import RangeCheck
from affidavit.libs.evidence.record import Leaf, parse_leaf, parse_time, time_text

FORMAT = "affidavit-export@v1"
_MEMBERS = frozenset({"after", "before", "checkpoint", "first", "format", "from", "last", "to"})


class ExportError(Exception):
    """The file is not what it says; the message says where."""


@dataclass(frozen=True)
class Header:
    """What the first line says."""

    since: datetime | None  # stamped at or after; None from the log's beginning
    until: datetime | None  # stamped before; None to its end
    first: int  # index of the first leaf in the file, a neighbour included
    last: int
    before: tuple[bytes, ...]  # siblings left of the first leaf, largest subtree first
    after: tuple[bytes, ...]  # siblings right of the last leaf, from the leaf upwards
    checkpoint: bytes  # the signed note

    def line(self) -> bytes:
        """The header's one form, with its newline."""
        return (
            canonicaljson.dumps(
                {
                    "after": [h.hex() for h in self.after],
                    "before": [h.hex() for h in self.before],
                    "checkpoint": self.checkpoint.decode(),
                    "first": str(self.first),
                    "format": FORMAT,
                    "from": time_text(self.since) if self.since else None,
                    "last": str(self.last),
                    "to": time_text(self.until) if self.until else None,
                }
            )
            + b"\n"
        )

    @classmethod
    def parse(cls, line: bytes) -> "Header":
        """Raises ValueError unless `line` is a header in its one form."""
        said = Members(canonicaljson.loads(line.removesuffix(b"\n")), _MEMBERS, frozenset())
        if said.value("format") != FORMAT:
            raise ValueError(f"format {said.value('format')!r} is not {FORMAT}")
        since, until = said.text_or_none("from"), said.text_or_none("to")
        header = cls(
            parse_time(since) if since else None,
            parse_time(until) if until else None,
            said.uint64("first"),
            said.uint64("last"),
            tuple(bytes.fromhex(h) for h in said.texts("before")),
            tuple(bytes.fromhex(h) for h in said.texts("after")),
            said.text("checkpoint").encode(),
        )
        if header.line() != line:
            raise ValueError("not in its one form")
        return header


@dataclass(frozen=True)
class VerifiedExport:
    """What was proved: these are all records of the span, as of `head`."""

    header: Header
    head: TreeHead
    records: int  # of the span, without its neighbours
    first: int | None  # index of the span's first record; None when it has none
    last: int | None
    closed: bool  # whether the log goes on after the span, so that nothing can join it any more


def verify_export(lines: Iterable[bytes], keys: LogKeys | Ed25519PublicKey) -> VerifiedExport:
    """Check an export's lines (each with its newline), one at a time.

    Args:
        keys: the log's, trusted from elsewhere.

    Raises:
        ExportError: a record is missing, changed, moved or too much, or the file is none.
    """
    rest = iter(lines)
    try:
        header = Header.parse(next(rest, b""))
    except ValueError as error:
        raise ExportError(f"line 1: no header of an export: {error}") from None
    try:
        head = LogKeys.of(keys).open(header.checkpoint)
    except NoteError as error:
        raise ExportError(f"checkpoint: not signed by the log's key: {error}") from None
    try:
        check = RangeCheck(header.first, header.before)
        span = _check_leaves(header, rest, check)
        check.verify(head.size, head.root, header.after)
    except ProofError as error:
        raise ExportError(f"these leaves are not leaves {header.first} to {header.last} of the log: {error}") from None
    return _check_ends(header, head, span)


def _check_leaves(header: Header, lines: Iterable[bytes], check: RangeCheck) -> range:
    """Feeds every leaf to `check`; the indices that lie in the span."""
    index, begin, end = header.first, header.first, header.first
    time: datetime | None = None
    for number, line in enumerate(lines, 2):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("the line is cut")
            leaf = parse_leaf(line[:-1])
        except ValueError as error:
            raise ExportError(f"line {number}: no record: {error}") from None
        if leaf.index != index or index > header.last:
            raise ExportError(f"line {number}: record {leaf.index} stands where {index} belongs ({_run(header)})")
        if time and leaf.time < time:
            raise ExportError(f"line {number}: record {index} is stamped before the one that precedes it")
        time = leaf.time
        match _place(header, leaf):
            case -1:
                begin = end = index + 1
            case 0:
                end = index + 1
            case _:
                pass
        check.add(line[:-1])
        index += 1
    if index != header.last + 1:
        raise ExportError(f"the file ends before record {index} ({_run(header)})")
    return range(begin, end)


def _check_ends(header: Header, head: TreeHead, span: range) -> VerifiedExport:
    """One neighbour at each end where the log has one, and no more."""
    if span.start - header.first != min(1, span.start):
        raise ExportError("the record before the span is missing, or there is more than that one")
    closed = span.stop < head.size
    if header.last + 1 - span.stop != (1 if closed else 0):
        raise ExportError("the record after the span is missing, or there is more than that one")
    first, last = (span[0], span[-1]) if span else (None, None)
    return VerifiedExport(header, head, len(span), first, last, closed)


def _place(header: Header, leaf: Leaf) -> int:
    """-1 before the span, 0 in it, 1 after it."""
    if header.since and leaf.time < header.since:
        return -1
    return 1 if header.until and leaf.time >= header.until else 0


def _run(header: Header) -> str:
    return f"the header says records {header.first} to {header.last}"
