"""`affidavit audit forget`: erase what could open a request's commitments."""

import json

import typer

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.audit.access import with_log

_DEADLINE_S = 600.0  # a big store is compacted before the answer


def forget(
    request_id: str = typer.Argument(metavar="REQUEST_ID", help="the request whose salts are erased"),
    tenant: str = typer.Option("default", "--tenant", help="the tenant that asked it"),
    yes: bool = typer.Option(False, "--yes", help="do not ask: it cannot be undone"),
    as_json: bool = typer.Option(False, "--json", help="one JSON object"),
) -> None:
    """Erase the salts of one request's records, also from the store's files. The leaves and all proofs stay.

    Receipts that were handed out, and backups made before, still have the salts: they are not in the log's hands.
    """
    if not yes:
        typer.confirm(f"erase the salts of request {request_id} of tenant {tenant} for ever?", abort=True)
    request = audit_pb2.ForgetRecordsRequest(tenant=tenant, request_id=request_id)

    async def work(log: audit_pb2_grpc.AuditServiceStub, _: DataFolder) -> audit_pb2.ForgetRecordsResponse:
        return await log.ForgetRecords(request, timeout=_DEADLINE_S)

    answer = with_log(work)
    indices = list(answer.indices)
    if as_json:
        print(json.dumps({"indices": indices, "results_erased": answer.results_erased}))
    else:
        print(f"forgotten: salts of {len(indices)} records ({', '.join(map(str, indices))})")
