"""`affidavit audit export` and `verify-export`: every record of a span of time in one file, none missing."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import typer
from rich.console import Console
from rich.progress import Progress

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.evidence.draft import MAX_LEAF_BYTES
from affidavit.libs.evidence.export import ExportError, Header, VerifiedExport
from affidavit.libs.evidence.export import verify_export as check_export
from affidavit.libs.evidence.note import TreeHead
from affidavit.libs.evidence.rangeproof import outer_siblings
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.audit.ls import parse_time
from affidavit.tools.cli.exits import Exit, fail
from affidavit.tools.cli.verify import ROTATIONS, read_log_key

MAX_LINE_BYTES = max(MAX_LEAF_BYTES, 1 << 18) + 1  # the header holds a note of at most 64 KiB, and about 128 hashes


def export(
    since: str = typer.Option("", "--from", help="stamped at or after: 2026-11-30 or 2026-11-30T12:00:00Z (UTC)"),
    until: str = typer.Option("", "--to", help="stamped before, in the same form"),
    out: Path = typer.Option(..., "-o", "--out", help="file to write"),
    log_key: Path | None = typer.Option(None, "--log-key", help="log's public key, PEM [default: the data folder's]"),
) -> None:
    """Write every record of a span of time to one file, with the proof that none is missing.

    The file holds the records of all tenants, as they stand in the log; results and salts are not in it.
    """
    begin, end = parse_time(since) if since else None, parse_time(until) if until else None
    if begin and end and end <= begin:
        fail("--to is not after --from", Exit.USAGE)
    if not out.parent.is_dir():
        fail(f"{out.parent} is no folder", Exit.USAGE)
    temporary = out.with_name(f".{out.name}.{os.getpid()}")

    async def work(log: audit_pb2_grpc.AuditServiceStub, data: DataFolder) -> DataFolder:
        with temporary.open("wb") as file:
            await _write(log, begin, end, file)
        return data

    try:
        data = with_log(work)
        verified = _verify(temporary, log_key or data.log_public_key)  # what is handed out was checked
        temporary.replace(out)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.USAGE)
    finally:
        temporary.unlink(missing_ok=True)
    print(f"{out}: {_said(verified)}")


def verify_export(
    file: Path = typer.Argument(metavar="FILE", help="as `affidavit audit export` wrote it"),
    log_key: Path | None = typer.Option(None, "--log-key", help="log's public key, PEM [default: the data folder's]"),
    rotations: Path | None = ROTATIONS,
) -> None:
    """Check an export offline: every record of its span is there, none was changed, moved, added or left out."""
    print(f"verified: {_said(_verify(file, log_key or DataFolder.default().log_public_key, rotations))}")


async def _write(
    log: audit_pb2_grpc.AuditServiceStub, since: datetime | None, until: datetime | None, file: BinaryIO
) -> None:
    note = (await log.GetCheckpoint(audit_pb2.GetCheckpointRequest())).checkpoint.note
    size = TreeHead.unverified(note).size
    if not size:
        fail("the log has no record yet: there is nothing to export", Exit.FAILED)
    begin, end = 0, size  # of the span; then a neighbour at each end
    if since:
        found = await _range(log, size, since=since)
        begin = found.start if found else size
    if until:
        end = (await _range(log, size, until=until)).stop
    first, last = max(0, begin - 1), min(size - 1, max(begin, end))
    paths = [
        (
            await log.GetInclusionProof(audit_pb2.GetInclusionProofRequest(leaf_index=place, tree_size=size))
        ).inclusion_proof.hashes
        for place in (first, last)
    ]
    before, after = outer_siblings(first, last, size, paths[0], paths[1])
    file.write(Header(since, until, first, last, tuple(before), tuple(after), note).line())
    with _progress() as progress:
        task = progress.add_task("records", total=last - first + 1)
        async for leaf in _leaves(log, first, last):
            file.write(leaf + b"\n")
            progress.advance(task)


async def _range(
    log: audit_pb2_grpc.AuditServiceStub, size: int, since: datetime | None = None, until: datetime | None = None
) -> range:
    """The indices of the first `size` records that lie in a span of time; empty at 0 when there are none."""
    request = audit_pb2.ListRecordsRequest(last_index=size - 1, limit=1)
    for time, field in ((since, request.from_time), (until, request.to_time)):
        if time:
            field.FromDatetime(time)
    async for answer in log.ListRecords(request):
        return range(answer.range.first, answer.range.last + 1) if answer.HasField("range") else range(0)
    return range(0)


async def _leaves(log: audit_pb2_grpc.AuditServiceStub, first: int, last: int) -> AsyncIterator[bytes]:
    async for answer in log.ListRecords(audit_pb2.ListRecordsRequest(first_index=first, last_index=last)):
        for record in answer.records:
            yield record.leaf


def _verify(path: Path, log_key: Path, rotations: Path | None = None) -> VerifiedExport:
    key = read_log_key(log_key, rotations)
    try:
        with path.open("rb") as file, _progress() as progress:
            task = progress.add_task("checked", total=path.stat().st_size)
            return check_export(_lines(file, lambda count: progress.advance(task, count)), key)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.USAGE)
    except ExportError as error:
        fail(f"NOT verified: {error}", Exit.UNVERIFIED)


def _lines(file: BinaryIO, read: Callable[[int], None]) -> Iterator[bytes]:
    """A line longer than any comes in pieces without a newline, which are refused."""
    while line := file.readline(MAX_LINE_BYTES):
        yield line
        read(len(line))


def _progress() -> Progress:
    return Progress(console=Console(stderr=True), transient=True, disable=not os.isatty(2))


def _said(export: VerifiedExport) -> str:
    header = export.header
    span = f"from {header.since or 'the beginning'} to {header.until or 'the end'}"
    which = f" ({export.first} to {export.last})" if export.records else ""
    lines = [
        f"{export.records} records{which}, all that {export.head.origin} has {span}",
        f"  as of the checkpoint of {export.head.size} records, signed by the log's key",
    ]
    if not export.closed:
        lines.append(
            "  the log ended here when that checkpoint was signed: later records of this span are not ruled out"
        )
    return "\n".join(lines)
