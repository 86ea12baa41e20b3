"""`affidavit usage`: what was answered, from the log alone."""

import csv as csv_format
import json as json_format
import sys
from collections.abc import Iterable

import typer
from rich.console import Console
from rich.table import Table

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.evidence.record import Leaf, parse_leaf
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.audit.ls import set_span
from affidavit.tools.cli.exits import Exit, fail

BY = ("tenant", "bundle")
COUNTS = ("documents", "pages", "decisions", "latency_us")


def usage(
    by: str = typer.Option("tenant,bundle", "--by", help="tenant, bundle, or both"),
    since: str = typer.Option("", "--from", help="stamped at or after: 2026-11-30 or 2026-11-30T12:00:00Z (UTC)"),
    until: str = typer.Option("", "--to", help="stamped before, in the same form"),
    json: bool = typer.Option(False, "--json", help="one JSON object, with the index range and the checkpoint"),
    csv: bool = typer.Option(False, "--csv", help="for billing"),
) -> None:
    """Count answers from the log. latency_us sums each document's and decision's time from call to record, in
    microseconds; the log has no engine time and no tokens."""
    names = by.split(",")
    if not set(names) <= set(BY):
        fail(f"--by {by}: write tenant, bundle or tenant,bundle", Exit.USAGE)
    request = audit_pb2.ListRecordsRequest()
    set_span(request, since, until)

    async def read(
        log: audit_pb2_grpc.AuditServiceStub, _: DataFolder
    ) -> tuple[list[Leaf], str, tuple[int, int] | None]:
        leaves, checkpoint, span = list[Leaf](), "", None
        async for answer in log.ListRecords(request):
            leaves += [leaf for r in answer.records if (leaf := parse_leaf(r.leaf)).bundle]
            if answer.HasField("checkpoint"):
                checkpoint = answer.checkpoint.note.decode()
            if answer.HasField("range"):
                span = (answer.range.first, answer.range.last)
        return leaves, checkpoint, span

    leaves, checkpoint, span = with_log(read)
    rows = count(leaves, names)
    if json:
        first, last = span or (None, None)
        print(json_format.dumps({"usage": rows, "first_index": first, "last_index": last, "checkpoint": checkpoint}))
        return
    if csv:
        writer = csv_format.DictWriter(sys.stdout, [*names, *COUNTS, "first_index", "last_index"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(r | dict(zip(("first_index", "last_index"), span or ("", ""), strict=True)) for r in rows)
        return
    table = Table(box=None, pad_edge=False)
    for name in (*names, *COUNTS):
        table.add_column(name, justify="right" if name in COUNTS else "left")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(highlight=False).print(table)
    print(f"records {span[0]} to {span[1]}, checkpoint of {checkpoint.splitlines()[1]}" if span else "no records")


def count(leaves: Iterable[Leaf], names: Iterable[str]) -> list[dict[str, str | int]]:
    """A row for each group, in order of the group's names. A document counts when it was answered to its end."""
    names = list(names)
    groups: dict[tuple[str, ...], dict[str, int]] = {}
    for leaf in leaves:
        parts = {"tenant": leaf.tenant, "bundle": leaf.bundle or ""}
        row = groups.setdefault(tuple(parts[n] for n in names), dict.fromkeys(COUNTS, 0))
        answered = leaf.kind == "document" and leaf.phase == "closed" and leaf.output_commitment is not None
        row["documents"] += answered
        row["pages"] += leaf.kind == "page"
        row["decisions"] += leaf.kind == "decision"
        # A page's latency lies within its document's.
        row["latency_us"] += leaf.latency_us if answered or leaf.kind == "decision" else 0
    return [dict(zip(names, key, strict=True)) | groups[key] for key in sorted(groups)]
