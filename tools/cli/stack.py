"""`affidavit up | down | status`."""

import asyncio
import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import grpc
import typer
from rich.console import Console
from rich.table import Table

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.evidence.scrubstate import FILE, ScrubState
from affidavit.libs.rpc import connect
from affidavit.libs.runtime import PORTS, DataFolder, runtime_folder
from affidavit.tools.cli.exits import Exit, fail
from affidavit.tools.stack import plan, stackfile
from affidavit.tools.stack.stackfile import RunningStack
from affidavit.tools.stack.supervisor import Supervisor, is_ready

DOWN_TIMEOUT_S = 60.0


def up(
    port_base: int = typer.Option(PORTS["ingress"], min=1024, max=60_000, help="port of ingress; the others follow"),
    replicas: list[str] = typer.Option([], "--replicas", metavar="SERVICE=N", help="run N of a service (ocr=2)"),
) -> None:
    """Start the services and keep them running until Ctrl-C."""
    asyncio.run(_up(port_base, _replicas(replicas)))


def down() -> None:
    """Stop the running stack gracefully."""
    stack = stackfile.read()
    if stack is None:
        print("no stack is running")
        return
    os.kill(stack.supervisor_pid, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_TIMEOUT_S
    while stack.alive():
        if time.monotonic() > deadline:
            fail(f"supervisor {stack.supervisor_pid} has not stopped after {DOWN_TIMEOUT_S:.0f} s", Exit.FAILED)
        time.sleep(0.05)
    print("stopped")


def status(as_json: bool = typer.Option(False, "--json", help="one JSON object")) -> None:
    """Show what runs: services, addresses, pids, readiness, records in the log."""
    stack = stackfile.read()
    if stack is None:
        if as_json:
            print(json.dumps({"running": False}))
        else:
            print("no stack is running; start one with `affidavit up`")
        sys.exit(Exit.UNAVAILABLE)
    ready, records = asyncio.run(_inspect(stack))
    scrub = ScrubState.load(Path(stack.home) / "audit" / FILE)
    if as_json:
        services = [
            {"name": s.name, "address": s.address, "pid": s.pid, "ready": r}
            for s, r in zip(stack.services, ready, strict=True)
        ]
        found = [finding.what for finding in scrub.known]
        answer = {"running": True, "home": stack.home, "records": records, "services": services, "log_damage": found}
        print(json.dumps(answer))
    else:
        _print_table(stack, ready)
        print(f"data {stack.home}; records in the log: {'?' if records is None else records}")
        for finding in scrub.known:
            print(f"LOG DAMAGED: {finding.what}; {finding.restore}")
    sys.exit(Exit.OK if all(ready) else Exit.UNAVAILABLE)


async def _up(port_base: int, replicas: dict[str, int]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if running := stackfile.read():
        fail(
            f"a stack is running already (supervisor pid {running.supervisor_pid}); see `affidavit status`", Exit.USAGE
        )
    data = DataFolder.default()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    begin = time.monotonic()
    with stackfile.hold(data.root):
        supervisor = Supervisor(
            plan.on_ports(port_base, data, replicas),
            data,
            runtime_folder() / "logs",
            report=console.print,
            private=False,
        )
        start = asyncio.create_task(supervisor.__aenter__())
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({start, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            return
        stack = start.result()
        try:
            _print_table(stack, [True] * len(stack.services))
            print(f"data {stack.home}; logs {runtime_folder() / 'logs'}; ready in {time.monotonic() - begin:.1f} s")
            print("Ctrl-C stops", flush=True)
            await stop.wait()
            console.print("stopping: running calls are finished first")
        finally:
            await supervisor.__aexit__()
    console.print("stopped")


async def _inspect(stack: RunningStack) -> tuple[list[bool], int | None]:
    ready = list(await asyncio.gather(*(is_ready(s.service, s.address) for s in stack.services)))
    audit = next(s for s in stack.services if s.service == "audit")
    async with connect(audit.address) as channel:
        try:
            stub = audit_pb2_grpc.AuditServiceStub(channel)
            answer = await stub.GetCheckpoint(audit_pb2.GetCheckpointRequest(), timeout=2)
        except grpc.aio.AioRpcError:
            return ready, None
    return ready, int(answer.checkpoint.note.split(b"\n")[1])  # tlog-checkpoint: origin, tree size, root hash


def _print_table(stack: RunningStack, ready: list[bool]) -> None:
    table = Table("service", "address", "pid", "metrics", "state", box=None, pad_edge=False)
    for service, ok in zip(stack.services, ready, strict=True):
        metrics = f"http://{service.metrics_address}/metrics" if service.metrics_address else "-"
        state = "[green]ready[/green]" if ok else "[red]not ready[/red]"
        table.add_row(service.name, service.address, str(service.pid), metrics, state)
    since = datetime.fromisoformat(stack.started)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    if (age := (datetime.now(UTC) - since).total_seconds()) > 5:
        console.print(f"up for {int(age)} s")


def _replicas(options: list[str]) -> dict[str, int]:
    replicas: dict[str, int] = {}
    for option in options:
        service, _, count = option.partition("=")
        if service not in ("ocr", "preprocess") or not count.isdecimal() or not 1 <= int(count) <= 16:
            fail(f"--replicas {option}: write ocr=2 or preprocess=2 (1 to 16)", Exit.USAGE)
        replicas[service] = int(count)
    return replicas
