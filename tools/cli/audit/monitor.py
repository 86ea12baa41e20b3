"""`affidavit audit monitor`: watch that a log only grows."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
import typer

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.evidence.note import NoteError, Verifier
from affidavit.libs.rpc import connect
from affidavit.tools.cli.exits import Exit, fail
from affidavit.tools.witness.monitor import Monitor, NotAppendOnly

_DEADLINE_S = 30.0


def monitor(
    address: str = typer.Option(..., "--address", help="the audit service, host:port or unix:/path"),
    log: list[str] = typer.Option(
        ..., "--log", help="the log's verifier key, name+id+base64, as you got it once; again for each later key"
    ),
    state: Path = typer.Option(..., "--state", help="folder of what it remembers, on a machine of your own"),
    every: float = typer.Option(60.0, "--every", min=0.1, help="seconds between looks"),
    once: bool = typer.Option(False, "--once", help="look once and end"),
) -> None:
    """Remember the log's newest checkpoint; exit 4 when a later one does not continue it.

    The two signed checkpoints that contradict each other stay in the state folder: they are the proof.
    """
    try:
        watching = Monitor(state, *_keys(log))
        asyncio.run(_watch(watching, address, every, once))
    except NotAppendOnly as alarm:
        fail(f"ALARM: {alarm}", Exit.UNVERIFIED)
    except NoteError as error:
        fail(str(error), Exit.USAGE)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.USAGE)


def _keys(texts: Sequence[str]) -> tuple[Verifier, *tuple[Verifier, ...]]:
    first, *later = (Verifier.parse(text) for text in texts)
    if any(key.name != first.name for key in later):
        raise NoteError("--log names several logs: a monitor watches one, by all of its keys")
    return first, *later


async def _watch(watching: Monitor, address: str, every: float, once: bool) -> None:
    async with connect(address) as channel:
        stub = audit_pb2_grpc.AuditServiceStub(channel)
        while True:
            try:
                await _look(watching, stub)
            except grpc.aio.AioRpcError as error:
                if once:
                    fail(f"{address}: {error.details()}", Exit.UNAVAILABLE)
                print(f"not reached: {error.details()}", file=sys.stderr, flush=True)
            if once:
                return
            await asyncio.sleep(every)


async def _look(watching: Monitor, stub: audit_pb2_grpc.AuditServiceStub) -> None:
    async def prove(first: int, second: int) -> Sequence[bytes]:
        request = audit_pb2.GetConsistencyProofRequest(first_size=first, second_size=second)
        return (await stub.GetConsistencyProof(request, timeout=_DEADLINE_S)).hashes

    answer = await stub.GetCheckpoint(audit_pb2.GetCheckpointRequest(), timeout=_DEADLINE_S)
    head = await watching.see(answer.checkpoint.note, prove)
    print(f"consistent: {head.size} records of {head.origin}", flush=True)
