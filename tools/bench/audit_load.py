"""What the audit benchmark does to a service: its process, the messages, and callers that each wait for their answers.

Messages are built and serialised before the clock starts, their commitments random: zeroes would compress.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2

CALLERS = 64
PACED_PER_S = 1000
OpenStream = Callable[..., Any]


@contextmanager
def service(home: Path) -> Generator[tuple[str, psutil.Process]]:
    """An audit service with its usual settings on `home`: its address and process."""
    address = f"unix:{home}.sock"
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "affidavit.services.audit", "--home", str(home), "--address", address]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    print(f"audit service: pid {process.pid}", file=sys.stderr)
    try:
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(120)


def items(name: str, count: int) -> list[audit_pb2.AppendItem]:
    """Records of one page each, of the usual size."""
    step = evidence_pb2.StepEvidence(
        service="ocr",
        software="affidavit-ocr 0.1.0",
        model="pp-ocrv6-small",
        version="1.0.0",
        model_hash=bytes(32),
        engine="onnxruntime",
        engine_version="1.23.2",
        precision="fp32",
        threads=2,
        device_id="cpu",
        input_digest=bytes(32),
        output_digest=bytes(32),
    )
    return [
        audit_pb2.AppendItem(
            sequence=n,
            step=f"page/{n}",
            content_digest=os.urandom(32),
            salt=os.urandom(32),
            draft=evidence_pb2.RecordDraft(
                tenant="default",
                request_id=name,
                kind=evidence_pb2.RECORD_KIND_PAGE,
                phase=evidence_pb2.RECORD_PHASE_SINGLE,
                input_commitment=os.urandom(32),
                output_commitment=os.urandom(32),
                options_json=b'{"dpi":200}',
                status="ok",
                bundle="document@1.0.0",
                latency_us=40_000,
                steps=[step],
            ),
        )
        for n in range(count)
    ]


def messages(name: str, count: int, of: int) -> list[bytes]:
    """`count` serialised messages of `of` records each; every record of the run has its own key."""
    return [audit_pb2.AppendRecordsRequest(items=items(f"{name}-{n}", of)).SerializeToString() for n in range(count)]


@dataclass(frozen=True)
class Load:
    """What one round took."""

    records: int
    seconds: float
    service_cpu_s: float
    callers_cpu_s: float

    @property
    def per_s(self) -> float:
        return self.records / self.seconds


async def round_of(open_stream: OpenStream, process: psutil.Process, name: str, count: int, of: int) -> Load:
    """CALLERS callers at once, each `count` messages of `of` records, one under way: until all is acknowledged."""
    work = [messages(f"{name}-{caller}", count, of) for caller in range(CALLERS)]
    own = psutil.Process()
    service_before, own_before, begin = _cpu_s(process), _cpu_s(own), perf_counter()
    await asyncio.gather(*(_caller(open_stream(wait_for_ready=True), part, of) for part in work))
    seconds = perf_counter() - begin
    return Load(CALLERS * count * of, seconds, _cpu_s(process) - service_before, _cpu_s(own) - own_before)


async def _caller(stream: Any, work: list[bytes], of: int) -> None:
    for message in work:
        await stream.write(message)
        left = of
        while left:
            left -= _acknowledged(await stream.read())
    await stream.done_writing()


def _acknowledged(response: audit_pb2.AppendRecordsResponse) -> int:
    for result in response.results:
        if not result.HasField("receipt") or result.repeated_key:
            raise RuntimeError(f"a record was not appended: {result.error.reason} {result.error.message}")
    return len(response.results)


async def paced(open_stream: OpenStream, name: str, count: int) -> list[float]:
    """Seconds from when each record was due to its acknowledgement, over CALLERS streams at PACED_PER_S together."""
    work = messages(name, count, 1)
    streams = [open_stream(wait_for_ready=True) for _ in range(CALLERS)]
    begin = perf_counter() + 0.1

    async def caller(number: int) -> list[float]:
        took: list[float] = []
        for place in range(number, len(work), CALLERS):
            due = begin + place / PACED_PER_S
            await asyncio.sleep(max(0.0, due - perf_counter()))
            await streams[number].write(work[place])
            _acknowledged(await streams[number].read())
            took.append(perf_counter() - due)
        await streams[number].done_writing()
        return took

    return [seconds for took in await asyncio.gather(*map(caller, range(CALLERS))) for seconds in took]


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))]


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
