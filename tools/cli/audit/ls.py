"""`affidavit audit ls`: records, filtered."""

import json as json_text
from datetime import UTC, datetime

import typer
from rich.console import Console

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.audit.table import records_table, write_line
from affidavit.tools.cli.exits import Exit, fail

KINDS = {name.removeprefix("RECORD_KIND_").lower(): n for name, n in evidence_pb2.RecordKind.items() if n}


def ls(
    first: int = typer.Option(0, "--first", min=0, help="first index"),
    last: int | None = typer.Option(None, "--last", min=0, help="last index, included"),
    since: str = typer.Option("", "--from", help="stamped at or after: 2026-11-30 or 2026-11-30T12:00:00Z (UTC)"),
    until: str = typer.Option("", "--to", help="stamped before, in the same form"),
    tenant: str = typer.Option("", "--tenant"),
    request_id: str = typer.Option("", "--request", help="request id"),
    bundle: str = typer.Option("", "--bundle", help="bundle or bundle@version"),
    kind: str = typer.Option("", "--kind", help=", ".join(KINDS)),
    limit: int = typer.Option(50, "--limit", min=0, help="at most so many, the newest; 0 for all"),
    json: bool = typer.Option(False, "--json", help="one record a line, each with the leaf's exact bytes"),
) -> None:
    """List records, the newest last."""
    if kind and kind not in KINDS:
        fail(f"no kind {kind!r}; there is {', '.join(KINDS)}", Exit.USAGE)
    request = audit_pb2.ListRecordsRequest(
        first_index=first,
        last_index=last,
        tenant=tenant,
        request_id=request_id,
        bundle=bundle,
        kind=KINDS.get(kind, 0),  # type: ignore[arg-type]
        limit=limit,
        newest_first=limit > 0,
    )
    set_span(request, since, until)

    async def read(log: audit_pb2_grpc.AuditServiceStub, _: DataFolder) -> list[bytes]:
        return [record.leaf async for answer in log.ListRecords(request) for record in answer.records]

    leaves = with_log(read)
    if request.newest_first:
        leaves.reverse()
    if json:
        for leaf in leaves:
            write_line(leaf)
    elif leaves:
        console = Console(highlight=False)
        # Narrower, rich would drop the index to make room for request ids; a terminal wraps what it cannot hold.
        console.width = max(console.width, 150)
        console.print(records_table(leaves))
        if limit and len(leaves) == limit:
            Console(stderr=True, highlight=False).print(f"the newest {limit}; --limit 0 for all")
    else:
        Console(stderr=True).print("no such records")


def set_span(request: audit_pb2.ListRecordsRequest, since: str, until: str) -> None:
    """Ask for the records from one time to another, as `parse_time` reads them; empty for no end."""
    for text, field in ((since, request.from_time), (until, request.to_time)):
        if text:
            field.FromDatetime(parse_time(text))


def parse_time(text: str) -> datetime:
    """A day or a moment in UTC; ends the command when it is neither."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{json_text.dumps(text)} is no time: write 2026-11-30 or 2026-11-30T12:00:00Z", Exit.USAGE)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
