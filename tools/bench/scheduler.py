"""The batch scheduler: how fast it is itself, and what its policy does to waiting and throughput.

The policy runs in virtual time over recorded arrivals (`arrivals.py`), with one engine that pads: a batch of n lines
takes A + B * (widest line) * n, as a recogniser does whose tensor is as wide as its widest crop. FIFO is the same
scheduler with every cost compatible: batches in the order of arrival. So all but the operations/s are exact figures,
the same on every machine.
"""

import asyncio
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from affidavit._native import Batch, DynamicBatchScheduler, scheduler_churn
from affidavit.libs.batching import Batcher
from affidavit.tools.bench.arrivals import Arrival, record

MAX_BATCH = 8
# A recogniser that needs about 40 ms for a line of text width, as PP-OCRv6 small does on two cores.
ENGINE_CALL_US = 3000
ENGINE_PIXEL_US = 45

# Pages a second: FIFO's engine is two thirds busy, and twice what FIFO can do.
USUAL_LOAD, OVERLOAD = 0.6, 1.4

# The settings of the headline: an engine never idles while lines wait.
MAX_WAIT_MS, SIGMA, HOLD_MS = 500, 1.0, 0

WAITS_MS = (20, 200, 1000, 5000)
SIGMAS = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Run:
    """One simulated life: how long lines waited, and what the engine did."""

    waits_us: Sequence[int]  # sorted
    engine_us: int
    padding_share: float  # of the engine's pixels, those that were padding

    def wait_ms(self, share: float) -> float:
        return round(self.waits_us[int(share * (len(self.waits_us) - 1))] / 1000, 3)

    @property
    def lines_per_engine_s(self) -> float:
        return len(self.waits_us) / self.engine_us * 1e6


def simulate(arrivals: Sequence[Arrival], *, max_wait_ms: int, sigma: float, hold_ms: int | None, ratio: float) -> Run:
    """Every arrival through one padding engine, in virtual time."""
    queue = DynamicBatchScheduler(
        len(arrivals),
        MAX_BATCH,
        max_wait_ms * 1000,
        sigma,
        ratio,
        hold_us=None if hold_ms is None else hold_ms * 1000,
        virtual_time=True,
    )
    waits: list[int] = []
    arrived = free_at = engine_us = pixels = tensor_pixels = 0
    while len(waits) < len(arrivals):
        now = queue.now_us
        while arrived < len(arrivals) and arrivals[arrived].at_us <= now:
            queue.submit(arrived, arrivals[arrived].width)
            arrived += 1
        batch: Batch | None = queue.next_batch(0) if free_at <= now else None
        if batch is not None:
            widths = [arrivals[id].width for id in batch.ids]
            padded = max(widths) * len(widths)
            took = ENGINE_CALL_US + ENGINE_PIXEL_US * padded
            free_at, engine_us = now + took, engine_us + took
            pixels, tensor_pixels = pixels + sum(widths), tensor_pixels + padded
            waits += batch.queue_us
            continue
        next_events = [arrivals[arrived].at_us] if arrived < len(arrivals) else []
        if free_at > now:
            next_events.append(free_at)
        elif queue.due_us is not None:
            next_events.append(queue.due_us)
        if next_events:
            queue.advance(min(next_events) - now)
    return Run(sorted(waits), engine_us, 1 - pixels / tensor_pixels)


def ours(arrivals: Sequence[Arrival]) -> Run:
    return simulate(arrivals, max_wait_ms=MAX_WAIT_MS, sigma=SIGMA, hold_ms=HOLD_MS, ratio=1.25)


def fifo(arrivals: Sequence[Arrival]) -> Run:
    return simulate(arrivals, max_wait_ms=MAX_WAIT_MS, sigma=1e9, hold_ms=HOLD_MS, ratio=1e9)


def run(quick: bool) -> dict[str, float | int | str | None]:
    """All figures, flat. Times are milliseconds of waiting in the queue, operations are requests put in and taken out.

    `p99_ms_wait_<w>ms_sigma_<s>` is the table over max_wait_us and sigma, with batches held for max_wait_us; the
    headline `p99_ms` holds none.
    """
    repeats = 3 if quick else 7
    requests = 200_000 if quick else 2_000_000
    pages = 300 if quick else 2000

    def median(measure: Callable[[], float]) -> float:
        return round(statistics.median(measure() for _ in range(repeats)))

    _say("operations")
    figures: dict[str, float | int | str | None] = {
        "operations_per_s": median(lambda: requests / scheduler_churn(1, 1, requests)),
        "contended_operations_per_s": median(lambda: requests / scheduler_churn(4, 2, requests)),
        "python_operations_per_s": median(lambda: _python_operations_per_s(requests // 10)),
        "batcher_operations_per_s": median(lambda: asyncio.run(_batcher_operations_per_s(requests // 20))),
        "repeats": repeats,
        "pages": pages,
        "max_batch": MAX_BATCH,
        "max_wait_us": MAX_WAIT_MS * 1000,
        "hold_us": HOLD_MS * 1000,
        "sigma": SIGMA,
    }
    for prefix, load in (("", USUAL_LOAD), ("overload_", OVERLOAD)):
        _say(f"policy at {load} pages/s")
        arrivals = record(pages, load)
        mine, theirs = ours(arrivals), fifo(arrivals)
        figures |= {
            f"{prefix}p50_ms": mine.wait_ms(0.5),
            f"{prefix}p99_ms": mine.wait_ms(0.99),
            f"{prefix}fifo_p50_ms": theirs.wait_ms(0.5),
            f"{prefix}fifo_p99_ms": theirs.wait_ms(0.99),
            f"{prefix}padding_share": round(mine.padding_share, 3),
            f"{prefix}fifo_padding_share": round(theirs.padding_share, 3),
            f"{prefix}throughput_ratio": round(mine.lines_per_engine_s / theirs.lines_per_engine_s, 3),
        }
    arrivals = record(pages, USUAL_LOAD)
    for max_wait_ms in WAITS_MS:
        _say(f"max_wait {max_wait_ms} ms")
        for sigma in SIGMAS:
            life = simulate(arrivals, max_wait_ms=max_wait_ms, sigma=sigma, hold_ms=None, ratio=1.25)
            figures[f"p99_ms_wait_{max_wait_ms}ms_sigma_{sigma:g}"] = life.wait_ms(0.99)
    return figures


def _python_operations_per_s(requests: int) -> float:
    queue = DynamicBatchScheduler(1024, MAX_BATCH, 1000, 1.0, hold_us=0)
    begin = perf_counter()
    for id in range(requests):
        queue.submit(id, 10 + id % 10, id % 4)
        if id % 32 == 31:
            while queue.next_batch(0):
                pass
    return requests / (perf_counter() - begin)


async def _batcher_operations_per_s(requests: int) -> float:
    """Awaited one by one, answered by an engine that does nothing: the price of a batcher, wake-ups included."""

    def echo(items: list[int]) -> list[int]:
        return items

    batcher = Batcher("bench", echo, capacity=requests, max_batch=MAX_BATCH, max_wait_us=1000, hold_us=0)
    begin = perf_counter()
    await asyncio.gather(*(batcher.submit(i) for i in range(requests)))
    took = perf_counter() - begin
    await batcher.close()
    return requests / took


def _say(what: str) -> None:
    print(f"bench scheduler: {what}", file=sys.stderr)
