"""`affidavit audit forget`: erase what could open a request's commitments."""

import asyncio
import json

import grpc
import typer

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.errors import AffidavitError, from_rpc_error
from affidavit.libs.rpc import connect
from affidavit.libs.runtime import default_address
from affidavit.tools.cli.exits import exit_for, fail

_DEADLINE_S = 600.0  # a big store is compacted before the answer


def forget(
    request_id: str = typer.Argument(metavar="REQUEST_ID", help="the request whose salts are erased"),
    tenant: str = typer.Option("default", "--tenant", help="the tenant that asked it"),
    address: str = typer.Option(
        default_address("audit"), "--address", envvar="AFFIDAVIT_AUDIT_ADDRESS", help="the audit service"
    ),
    yes: bool = typer.Option(False, "--yes", help="do not ask: it cannot be undone"),
    as_json: bool = typer.Option(False, "--json", help="one JSON object"),
) -> None:
    """Erase the salts of one request's records, also from the store's files. The leaves and all proofs stay.

    Receipts that were handed out, and backups made before, still have the salts: they are not in the log's hands.
    """
    if not yes:
        typer.confirm(f"erase the salts of request {request_id} of tenant {tenant} for ever?", abort=True)
    try:
        answer = asyncio.run(_forget(address, tenant, request_id))
    except AffidavitError as error:
        fail(f"{error.message} [{error.reason}]", exit_for(error))
    indices = list(answer.indices)
    if as_json:
        print(json.dumps({"indices": indices, "results_erased": answer.results_erased}))
    else:
        print(f"forgotten: salts of {len(indices)} records ({', '.join(map(str, indices))})")


async def _forget(address: str, tenant: str, request_id: str) -> audit_pb2.ForgetRecordsResponse:
    request = audit_pb2.ForgetRecordsRequest(tenant=tenant, request_id=request_id)
    async with connect(address) as channel:
        try:
            return await audit_pb2_grpc.AuditServiceStub(channel).ForgetRecords(request, timeout=_DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, "audit") from None
