"""The way from an audit command to the log, and how its errors end the command."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from affidavit.audit.v1 import audit_pb2_grpc
from affidavit.libs.errors import AffidavitError, from_rpc_error
from affidavit.libs.rpc import connect
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.exits import exit_for, fail
from affidavit.tools.stack.session import audit_session

Answer = TypeVar("Answer")
Work = Callable[[audit_pb2_grpc.AuditServiceStub, DataFolder], Awaitable[Answer]]


def with_log(work: "Work[Answer]") -> Answer:
    """Run `work` against the log of the running stack, or of a private audit service; an error ends the command."""

    async def run() -> Answer:
        report = lambda line: print(f"affidavit: {line}", file=sys.stderr)  # noqa: E731
        async with audit_session(report) as (address, data), connect(address) as channel:
            try:
                return await work(audit_pb2_grpc.AuditServiceStub(channel), data)
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error, "audit") from None

    try:
        return asyncio.run(run())
    except AffidavitError as error:
        fail(f"{error.message} [{error.reason}]", exit_for(error))
