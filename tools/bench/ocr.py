"""`affidavit bench ocr`: documents to text through all services, with rapidocr in process beside it.

Keys: `pages_per_s`, `rapidocr_pages_per_s`, `ratio` (of the two, taken in turn); `cer`, `rapidocr_cer`, `cer_<kind>`
(micro-averages of the shared scorer); `stack_overhead`, `stack_overhead_cpu` (seconds through all services over the same
pipeline in process plus drawing, minus 1; wall and CPU); `peak_rss_mb_<service>` (with its workers); `first_page_s` (from
the upload's last byte to the first page, three-page letter); `rss_ratio_300_pages` (peak memory of all services over 300
one-line pages, to that over 10); `documents_at_once`, `repeats`, `peer_rapidocr_version`.

Medians of `repeats` rounds; in a round, stack, rapidocr and in-process run one after another on the same files.
"""

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from affidavit.ingress.v1 import document_pb2 as ingress_pb2
from affidavit.ingress.v1 import document_pb2_grpc as ingress_grpc
from affidavit.libs.rpc import connect
from affidavit.libs.runtime import DataFolder
from affidavit.tools.bench import peers
from affidavit.tools.bench.memory import family, forget_peaks, peak_rss_mb, total_peak_kb
from affidavit.tools.bench.ocr_pages import AccuracyFile, accuracy_files
from affidavit.tools.cli.demo import EXAMPLE
from affidavit.tools.client import document
from affidavit.tools.examples.one_line_pages import one_line_pages
from affidavit.tools.stack import plan
from affidavit.tools.stack.stackfile import RunningStack
from affidavit.tools.stack.supervisor import Supervisor

MANIFEST = Path(__file__).resolve().parents[3] / "shared" / "data" / "ocr" / "manifest.jsonl"
DOCUMENTS_AT_ONCE = 3
QUICK_EVERY = 4

Figures = dict[str, Any]


@dataclass
class Round:
    """One round's figures."""

    stack_wall_s: float = 0.0
    stack_cpu_s: float = 0.0
    pages: int = 0
    rapidocr_pages_per_s: float | None = None
    inprocess: dict[str, float] = field(default_factory=dict[str, float])


def run(quick: bool) -> Figures:
    """Measure. Quick: every fourth file, one round."""
    return asyncio.run(_run(quick))


async def _run(quick: bool) -> Figures:
    repeats = 1 if quick else 3
    with tempfile.TemporaryDirectory(prefix="affidavit-bench-") as folder:
        scratch = Path(folder)
        manifest = _manifest(scratch, QUICK_EVERY if quick else 1)
        files = accuracy_files(manifest)
        python = peers.peers_python()
        rounds: list[Round] = []
        first_pages: list[float] = []
        async with _stack(scratch) as stack:
            print(f"stack: {', '.join(f'{s.name} {s.pid}' for s in stack.services)}", file=sys.stderr)
            async with connect(stack.address) as channel:
                stub = ingress_grpc.DocumentServiceStub(channel)
                await _read_file(stub, EXAMPLE)  # warm
                for number in range(repeats):
                    rounds.append(await _round(stub, stack, files, manifest, python, scratch))
                    print(f"round {number + 1} of {repeats}: {rounds[-1]}", file=sys.stderr)
                for _ in range(5):
                    first_pages.append((await _read_file(stub, EXAMPLE)).first_page_s)
                growth = await _memory_growth(stub, stack, scratch)
            memory = {f"peak_rss_mb_{s.name}": peak_rss_mb(s.pid) for s in stack.services}
        return {
            **_figures(rounds),
            **_accuracy(scratch, manifest),
            "first_page_s": round(statistics.median(first_pages), 3),
            **memory,
            "rss_ratio_300_pages": growth,
            "documents_at_once": DOCUMENTS_AT_ONCE,
            "repeats": repeats,
            "peer_rapidocr_version": peers.version("rapidocr"),
        }


async def _round(
    stub: ingress_grpc.DocumentServiceStub,
    stack: RunningStack,
    files: Sequence[AccuracyFile],
    manifest: Path,
    python: Path | None,
    scratch: Path,
) -> Round:
    this = Round()
    cpu, wall = _cpu_s(stack), time.perf_counter()
    answers = await _read_all(stub, files)
    this.stack_wall_s, this.stack_cpu_s = time.perf_counter() - wall, _cpu_s(stack) - cpu
    this.pages = sum(answer.pages for answer in answers)
    with (scratch / "ours.jsonl").open("w", encoding="utf-8") as out:
        for file, answer in zip(files, answers, strict=True):
            line = {"file": file.file, "text": answer.text, "pages": answer.pages}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
    if python is not None:
        peer = await asyncio.to_thread(peers.run_rapidocr, python, manifest, scratch / "rapidocr.jsonl")
        this.rapidocr_pages_per_s = peer.pages_per_s
    command = [
        sys.executable,
        "-m",
        "affidavit.tools.bench.inprocess",
        str(manifest),
        "--at-once",
        str(DOCUMENTS_AT_ONCE),
    ]
    output = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
    this.inprocess = json.loads(output.stdout.splitlines()[-1])
    return this


@dataclass
class _Answer:
    text: str
    pages: int
    first_page_s: float


async def _memory_growth(stub: ingress_grpc.DocumentServiceStub, stack: RunningStack, scratch: Path) -> float:
    """Peak memory of all services over 300 one-line pages, to that over 10, both in the steady state."""
    peaks: list[int] = []
    for count in (10, 10, 300):  # the first brings the steady state about
        path = scratch / f"{count}-pages.pdf"
        path.write_bytes(one_line_pages(count))
        forget_peaks(stack)
        await _read_file(stub, path)
        peaks.append(sum(total_peak_kb(stack).values()))
    return round(peaks[2] / peaks[1], 4)


async def _read_all(stub: ingress_grpc.DocumentServiceStub, files: Sequence[AccuracyFile]) -> list[_Answer]:
    slots = asyncio.Semaphore(DOCUMENTS_AT_ONCE)

    async def one(file: AccuracyFile) -> _Answer:
        async with slots:
            return await _read_file(stub, file.path)

    return await asyncio.gather(*(one(file) for file in files))


async def _read_file(stub: ingress_grpc.DocumentServiceStub, path: Path) -> _Answer:
    pages: list[document.Page] = []
    times: list[float] = []
    uploaded = time.perf_counter()

    def on_page(page: document.Page) -> None:
        pages.append(page)
        times.append(time.perf_counter())

    def on_progress(progress: ingress_pb2.Progress) -> None:
        nonlocal uploaded
        if not progress.selected_count:
            uploaded = time.perf_counter()

    with path.open("rb") as file:
        await document.recognize(stub, file, on_page=on_page, on_progress=on_progress)
    text = "\n".join(line.text for page in pages for line in page.text.lines)
    return _Answer(text, len(pages), times[0] - uploaded)


def _figures(rounds: Sequence[Round]) -> Figures:
    def median(values: Sequence[float]) -> float:
        return round(statistics.median(values), 4)

    ours = [r.pages / r.stack_wall_s for r in rounds]
    theirs = [r.rapidocr_pages_per_s for r in rounds if r.rapidocr_pages_per_s]
    in_wall = [r.inprocess["ocr_wall_s"] + r.inprocess["render_wall_s"] for r in rounds]
    in_cpu = [r.inprocess["ocr_cpu_s"] + r.inprocess["render_cpu_s"] for r in rounds]
    return {
        "pages_per_s": median(ours),
        "rapidocr_pages_per_s": median(theirs) if theirs else None,
        "ratio": median([a / b for a, b in zip(ours, theirs, strict=True)]) if theirs else None,
        "stack_overhead": median([r.stack_wall_s / s - 1 for r, s in zip(rounds, in_wall, strict=True)]),
        "stack_overhead_cpu": median([r.stack_cpu_s / s - 1 for r, s in zip(rounds, in_cpu, strict=True)]),
        "pages": rounds[0].pages,
    }


def _accuracy(scratch: Path, manifest: Path) -> Figures:
    ours = peers.score(scratch / "ours.jsonl", manifest)
    figures: Figures = {"cer": round(ours["TOTAL"]["cer"], 4), "rapidocr_cer": None}
    if (scratch / "rapidocr.jsonl").exists():
        figures["rapidocr_cer"] = round(peers.score(scratch / "rapidocr.jsonl", manifest)["TOTAL"]["cer"], 4)
    return figures | {f"cer_{kind}": round(v["cer"], 4) for kind, v in sorted(ours.items()) if kind != "TOTAL"}


@asynccontextmanager
async def _stack(scratch: Path) -> AsyncGenerator[RunningStack]:
    """A stack of its own on a data folder of its own, unix sockets, nothing shared with one that runs."""
    os.environ["AFFIDAVIT_RUNTIME"] = str(scratch)
    data = DataFolder(scratch / "home")
    sockets = scratch / "s"
    sockets.mkdir()

    def report(line: str) -> None:
        print(line, file=sys.stderr)

    async with Supervisor(plan.on_sockets(sockets, data), data, scratch / "logs", report=report, private=True) as stack:
        yield stack


def _manifest(scratch: Path, every: int) -> Path:
    """The accuracy manifest with absolute paths, every n-th line of it."""
    lines = [json.loads(line) for line in MANIFEST.read_text("utf-8").splitlines() if line][::every]
    for line in lines:
        line["file"], line["truth"] = str(MANIFEST.parent / line["file"]), str(MANIFEST.parent / line["truth"])
    path = scratch / "manifest.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def _cpu_s(stack: RunningStack) -> float:
    """CPU seconds of all services and their workers, ended ones included."""
    total = resource.getrusage(resource.RUSAGE_SELF)
    used = total.ru_utime + total.ru_stime  # the client's share belongs to the way through the services
    for service in stack.services:
        for process in family(service.pid):
            times = process.cpu_times()
            used += times.user + times.system
        ended = psutil.Process(service.pid).cpu_times()
        used += ended.children_user + ended.children_system
    return used
