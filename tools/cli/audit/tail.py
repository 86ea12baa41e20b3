"""`affidavit audit tail`: records as they come."""

import typer
from rich.console import Console

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.evidence.note import TreeHead
from affidavit.libs.evidence.record import parse_leaf
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.audit.table import row, write_line


def tail(
    lines: int = typer.Option(10, "-n", "--lines", min=0, help="records before the newest to begin with"),
    json: bool = typer.Option(False, "--json", help="one record a line, each with the leaf's exact bytes"),
) -> None:
    """Follow the log until interrupted: the last records, then each new one."""
    console = Console(highlight=False, soft_wrap=True)

    async def follow(log: audit_pb2_grpc.AuditServiceStub, _: DataFolder) -> None:
        following: int | None = None
        async for answer in log.WatchCheckpoints(audit_pb2.WatchCheckpointsRequest()):
            size = TreeHead.unverified(answer.checkpoint.note).size
            first = max(0, size - lines) if following is None else following
            following = size
            if first >= size:
                continue
            request = audit_pb2.ListRecordsRequest(first_index=first, last_index=size - 1)
            async for page in log.ListRecords(request):
                for record in page.records:
                    if json:
                        write_line(record.leaf)
                    else:
                        console.print("  ".join(row(parse_leaf(record.leaf))), markup=False)

    with_log(follow)
