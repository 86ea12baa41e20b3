"""The evidence log: appends a second over gRPC, how long one takes, proofs, and a start.

A service process with its usual settings, and 64 callers in this process, each with one stream and one message under
way. The callers take their share of the same cores: the figures are what a machine of this size does with its load on
it. Rounds of 64 records a message, of one, and of the bare store take turns; figures are medians, and CPU time a record
is given beside them, which a busy machine changes less.

The bare store is one RocksDB family with leaves of the same size, 64 a group (one for each caller), each group written
and synced, in this process, without gRPC, hashes, signature or head.
"""

import asyncio
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.rpc import connect
from affidavit.libs.rpc.polling import poll_where_calls_complete
from affidavit.services.audit.entry import entry_of
from affidavit.services.audit.log import EvidenceLog, Proven
from affidavit.services.audit.opening import LogFolders
from affidavit.tools.bench.audit_load import CALLERS, Load, items, p99, paced, round_of, service

PROOFS = 5000
_METHOD = "/affidavit.audit.v1.AuditService/AppendRecords"
_RAW_GROUPS = 200


def run(quick: bool, full: bool = False) -> dict[str, object]:
    """All figures. The pre-filled log has 1,000,000 records, with `quick` 50,000, with `full` 10,000,000
    (`prefilled_records` says it)."""
    poll_where_calls_complete()
    prefill = 10_000_000 if full else 50_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="affidavit-bench-") as folder:
        figures = asyncio.run(_served(Path(folder), 3 if quick else 7))
        return figures | asyncio.run(_opened(Path(folder) / "filled", prefill))


async def _served(folder: Path, rounds: int) -> dict[str, object]:
    """What a service process of its own does."""
    many: list[Load] = []
    single: list[Load] = []
    raw: list[float] = []
    late: list[float] = []
    with service(folder / "served") as (address, process):
        async with connect(address) as channel:
            open_stream: Any = channel.stream_stream(
                _METHOD, response_deserializer=audit_pb2.AppendRecordsResponse.FromString
            )
            await round_of(open_stream, process, "warm", 1, 16)
            for number in range(rounds):
                many.append(await round_of(open_stream, process, f"many-{number}", 6, 64))
                raw.append(_raw_per_s(folder / f"raw-{number}"))
                single.append(await round_of(open_stream, process, f"one-{number}", 60, 1))
                late.append(p99(await paced(open_stream, f"paced-{number}", 3000)))
    return {
        "appends_per_s": round(median(load.per_s for load in many)),
        "appends_per_s_single": round(median(load.per_s for load in single)),
        "append_p99_ms": round(median(late) * 1000, 3),
        "raw_appends_per_s": round(median(raw)),
        "raw_ratio": round(median(load.per_s / bare for load, bare in zip(many, raw, strict=True)), 3),
        "service_cpu_us": _cpu_us(many, "service_cpu_s"),
        "callers_cpu_us": _cpu_us(many, "callers_cpu_s"),
        "service_cpu_us_single": _cpu_us(single, "service_cpu_s"),
        "callers_cpu_us_single": _cpu_us(single, "callers_cpu_s"),
        "repeats": rounds,
    }


def _cpu_us(loads: list[Load], which: str) -> float:
    return round(median(getattr(load, which) / load.records for load in loads) * 1e6, 1)


def _raw_per_s(path: Path) -> float:
    """Leaves a second that the bare store makes durable."""
    leaves = [entry_of(item).leaf(n, "2026-11-30T21:09:00.000001Z") for n, item in enumerate(items("raw", CALLERS))]
    store = Rdict(str(path), Options(raw_mode=True))
    begin = perf_counter()
    for group in range(_RAW_GROUPS):
        batch = WriteBatch(raw_mode=True)
        for place, leaf in enumerate(leaves):
            batch.put((group * CALLERS + place).to_bytes(8), leaf)
        store.write(batch, WriteOptions())
        store.flush_wal(sync=True)
    seconds = perf_counter() - begin
    store.close()
    return _RAW_GROUPS * CALLERS / seconds


async def _opened(home: Path, records: int) -> dict[str, object]:
    """A log of so many records: how long a service takes from its process's start to its first answer, and the log to
    make and check one record's proof."""
    folders = LogFolders.below(home)
    log = EvidenceLog(folders)
    leaf_bytes = 0
    for begin in range(0, records, 1000):
        for proven in log.append([entry_of(item) for item in items(f"fill-{begin}", min(1000, records - begin))]):
            if not isinstance(proven, Proven):
                raise SystemExit(f"not appended: {proven}")
            leaf_bytes += len(proven.leaf)
    took = [_seconds(lambda: log.record(random.randrange(records))) for _ in range(PROOFS)]
    log.close()
    on_disk = sum(path.stat().st_size for path in folders.store.rglob("*") if path.is_file())
    begin = perf_counter()
    with service(home) as (address, _):
        async with connect(address) as channel:
            stub: Any = audit_pb2_grpc.AuditServiceStub(channel)
            await stub.GetCheckpoint(audit_pb2.GetCheckpointRequest(), wait_for_ready=True)
            start_s = perf_counter() - begin
    return {
        "proof_p99_ms": round(p99(took) * 1000, 3),
        "start_s": round(start_s, 3),
        "bytes_per_record_ratio": round(on_disk / leaf_bytes, 3),
        "prefilled_records": records,
    }


def _seconds(call: Callable[[], object]) -> float:
    begin = perf_counter()
    call()
    return perf_counter() - begin
