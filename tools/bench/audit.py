"""The evidence log: appends a second over gRPC, how long one takes, proofs, and a start.

A service process with its usual settings, and 64 callers in this process, each with one stream and one message under
way. Messages are built and serialised before the clock starts, their commitments random: zeroes would compress. The
callers still take their share of the same cores: the figures are what a machine of this size does with its load on it.
`proof_p99_ms` and `start_s` are of the log in this process, without gRPC.
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.rpc import connect
from affidavit.services.audit.append_stream import entry_of
from affidavit.services.audit.log import EvidenceLog, Proven
from affidavit.services.audit.opening import LogFolders

CALLERS = 64
PACED_PER_S = 1000
PROOFS = 5000
_METHOD = "/affidavit.audit.v1.AuditService/AppendRecords"


def run(quick: bool) -> dict[str, object]:
    """All figures; the pre-filled log has 1,000,000 records, with `quick` 50,000 (`prefilled_records` says it)."""
    prefill = 50_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="affidavit-bench-") as folder:
        figures = _served(Path(folder) / "served", 1 if quick else 4)
        return figures | _opened(Path(folder) / "filled", prefill)


def _items(name: str, count: int) -> list[audit_pb2.AppendItem]:
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


def _messages(name: str, count: int, items: int) -> list[bytes]:
    """`count` serialised messages of `items` records each; every record of the run has its own key."""
    return [
        audit_pb2.AppendRecordsRequest(items=_items(f"{name}-{n}", items)).SerializeToString() for n in range(count)
    ]


def _served(home: Path, rounds: int) -> dict[str, object]:
    """What a service process of its own does."""
    address = f"unix:{home}.sock"
    command = [sys.executable, "-m", "affidavit.services.audit", "--home", str(home), "--address", address]
    home.mkdir()
    service = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    print(f"audit service: pid {service.pid}", file=sys.stderr)
    try:
        return asyncio.run(_over_grpc(address, rounds))
    finally:
        service.terminate()
        service.wait(60)


async def _over_grpc(address: str, rounds: int) -> dict[str, object]:
    many = [_messages(f"many-{c}", 6 * rounds, 64) for c in range(CALLERS)]
    single = [_messages(f"one-{c}", 100 * rounds, 1) for c in range(CALLERS)]
    async with connect(address) as channel:
        open_stream = channel.stream_stream(_METHOD, response_deserializer=audit_pb2.AppendRecordsResponse.FromString)
        await _callers(open_stream, [_messages("warm", 2, 64)])
        many_s = await _callers(open_stream, many)
        single_s = await _callers(open_stream, single)
        paced = await _paced(open_stream, _messages("paced", 3000 * rounds, 1))
    return {
        "appends_per_s": round(CALLERS * len(many[0]) * 64 / many_s),
        "appends_per_s_single": round(CALLERS * len(single[0]) / single_s),
        "append_p99_ms": round(_p99(paced) * 1000, 3),
    }


async def _callers(open_stream: Callable[..., Any], work: list[list[bytes]]) -> float:
    """Seconds until every caller has an acknowledgement for each of its records."""
    begin = perf_counter()
    await asyncio.gather(*(_caller(open_stream(wait_for_ready=True), messages) for messages in work))
    return perf_counter() - begin


async def _caller(stream: Any, messages: list[bytes]) -> None:
    expected = 0
    for message in messages:
        await stream.write(message)
        expected = expected or len(audit_pb2.AppendRecordsRequest.FromString(message).items)
        left = expected
        while left:
            left -= _acknowledged(await stream.read())
    await stream.done_writing()


def _acknowledged(response: audit_pb2.AppendRecordsResponse) -> int:
    for result in response.results:
        if not result.HasField("receipt") or result.repeated_key:
            raise RuntimeError(f"a record was not appended: {result.error.reason} {result.error.message}")
    return len(response.results)


async def _paced(open_stream: Callable[..., Any], messages: list[bytes]) -> list[float]:
    """Seconds from when each record was due to its acknowledgement, over CALLERS streams at PACED_PER_S together."""
    streams = [open_stream(wait_for_ready=True) for _ in range(CALLERS)]
    begin = perf_counter() + 0.1

    async def caller(number: int) -> list[float]:
        took: list[float] = []
        for place in range(number, len(messages), CALLERS):
            due = begin + place / PACED_PER_S
            await asyncio.sleep(max(0.0, due - perf_counter()))
            await streams[number].write(messages[place])
            _acknowledged(await streams[number].read())
            took.append(perf_counter() - due)
        await streams[number].done_writing()
        return took

    return [seconds for took in await asyncio.gather(*map(caller, range(CALLERS))) for seconds in took]


def _opened(home: Path, records: int) -> dict[str, object]:
    """A log of so many records: how long it takes to open, and to make and check one record's proof inside it."""
    folders = LogFolders.below(home)
    log = EvidenceLog(folders)
    leaf_bytes = 0
    for begin in range(0, records, 1000):
        for proven in log.append([entry_of(item) for item in _items(f"fill-{begin}", min(1000, records - begin))]):
            if not isinstance(proven, Proven):
                raise SystemExit(f"not appended: {proven}")
            leaf_bytes += len(proven.leaf)
    log.close()
    on_disk = sum(path.stat().st_size for path in folders.store.rglob("*") if path.is_file())
    begin = perf_counter()
    log = EvidenceLog(folders)
    start_s = perf_counter() - begin
    took = [_seconds(lambda: log.record(random.randrange(records))) for _ in range(PROOFS)]
    log.close()
    return {
        "proof_p99_ms": round(_p99(took) * 1000, 3),
        "start_s": round(start_s, 3),
        "bytes_per_record_ratio": round(on_disk / leaf_bytes, 3),
        "prefilled_records": records,
        "repeats": 1,
    }


def _seconds(call: Callable[[], object]) -> float:
    begin = perf_counter()
    call()
    return perf_counter() - begin


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))]
