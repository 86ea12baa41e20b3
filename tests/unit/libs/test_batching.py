"""A batcher gives each caller its own answer, whoever shared the batch, and nobody waits for ever."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY

from affidavit.libs.batching import Batcher, BatchHealth
from affidavit.libs.errors import AffidavitError

DEADLINE_S = 30

# The provider is one a process; nothing else in the tests sets it.
spans = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def tracing() -> None:
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(spans))


class GatedEngine:
    """Squares numbers, once the gate is open; remembers its batches. A negative number is a fault."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.batches: list[list[int]] = []

    def __call__(self, numbers: list[int]) -> list[int]:
        self.batches.append(numbers)
        self.entered.release()
        assert self.gate.wait(DEADLINE_S)
        if min(numbers) < 0:
            raise ZeroDivisionError("an engine's fault")
        return [n * n for n in numbers]

    async def busy(self, calls: int = 1) -> None:
        """Until so many more engine calls have begun."""
        for _ in range(calls):
            assert await asyncio.to_thread(self.entered.acquire, timeout=DEADLINE_S)


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Batcher[int, int]]]:
    made: list[tuple[Batcher[int, int], GatedEngine]] = []

    def build(engine: GatedEngine, **changes) -> Batcher[int, int]:
        settings = {"capacity": 64, "max_batch": 4, "max_wait_us": 3_600_000_000, "hold_us": 0}
        batcher = Batcher(changes.pop("name", "squares"), engine, **{**settings, **changes})
        made.append((batcher, engine))
        return batcher

    yield build
    for batcher, engine in made:
        engine.gate.set()
        await batcher.close(drain=False, deadline_s=DEADLINE_S)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


def start(batcher: Batcher[int, int], *numbers: int, **options) -> list[asyncio.Task[int]]:
    return [asyncio.create_task(batcher.submit(n, **options)) for n in numbers]


async def test_every_caller_gets_its_own_answer_and_batches_are_shared(make) -> None:
    engine = GatedEngine()
    batcher = make(engine)
    first = start(batcher, 1)
    await engine.busy()
    rest = start(batcher, 2, 3, 4, 5, 6)
    await until(lambda: batcher.stats().depth == 5)
    engine.gate.set()
    assert await asyncio.gather(*first, *rest) == [1, 4, 9, 16, 25, 36]
    assert engine.batches == [[1], [2, 3, 4, 5], [6]]
    assert batcher.stats().batches == len(engine.batches)


async def test_items_of_two_groups_never_share_an_engine_call(make) -> None:
    engine = GatedEngine()
    batcher = make(engine)
    first = start(batcher, 1)
    await engine.busy()
    tasks = first + [t for n in range(2, 10) for t in start(batcher, n, group=n % 2)]
    await until(lambda: batcher.stats().depth == 8)
    engine.gate.set()
    await asyncio.gather(*tasks)
    assert engine.batches[1:] == [[2, 4, 6, 8], [3, 5, 7, 9]]


async def test_several_engine_threads_work_at_once(make) -> None:
    engine = GatedEngine()
    batcher = make(engine, threads=3, max_batch=1)
    tasks = start(batcher, 1, 2, 3, 4)
    await engine.busy(3)  # the gate is closed: all three are inside
    assert len(engine.batches) == 3
    engine.gate.set()
    assert await asyncio.gather(*tasks) == [1, 4, 9, 16]


async def test_a_full_queue_is_refused_at_once_and_a_canary_is_not(make) -> None:
    engine = GatedEngine()
    batcher = make(engine, capacity=2)
    tasks = start(batcher, 1)
    await engine.busy()
    tasks += start(batcher, 2, 3)
    await until(lambda: batcher.stats().depth == 2)
    with pytest.raises(AffidavitError) as refused:
        await batcher.submit(4)
    assert (refused.value.reason, refused.value.retry_after_s) == ("QUEUE_FULL", 1.0)
    canary = start(batcher, 9, canary=True)
    await until(lambda: batcher.stats().depth == 3)
    engine.gate.set()
    assert await asyncio.gather(*tasks, *canary) == [1, 4, 9, 81]
    assert engine.batches[1][0] == 9


async def test_a_caller_that_leaves_takes_its_item_out_of_the_queue(make) -> None:
    engine = GatedEngine()
    batcher = make(engine)
    [first] = start(batcher, 1)
    await engine.busy()
    [stays, leaves] = start(batcher, 2, 3)
    await until(lambda: batcher.stats().depth == 2)
    leaves.cancel()
    await until(lambda: batcher.stats().cancelled == 1)
    first.cancel()  # already in the engine: its answer is dropped
    engine.gate.set()
    assert await stays == 4
    assert engine.batches == [[1], [2]]
    assert first.cancelled()


async def test_an_engine_fault_fails_its_own_batch_and_no_other(make) -> None:
    engine = GatedEngine()
    batcher = make(engine, max_batch=2)
    [before] = start(batcher, 2)
    await engine.busy()
    tasks = start(batcher, -1, 5)
    await until(lambda: batcher.stats().depth == 2)
    engine.gate.set()
    bad = await asyncio.gather(*tasks, return_exceptions=True)
    assert await before == 4
    assert [type(error) for error in bad] == [AffidavitError] * 2
    assert bad[0] is not bad[1]
    assert bad[0].reason == "ENGINE_FAILED"
    assert isinstance(bad[0].__cause__, ZeroDivisionError)
    assert await batcher.submit(3) == 9


async def test_an_engines_own_refusal_reaches_the_caller_as_it_is() -> None:
    def refuse(_items: list[int]) -> list[int]:
        raise AffidavitError("IMAGE_TOO_LARGE", "too many pixels")

    batcher = Batcher("refusing", refuse, capacity=4, max_batch=4, max_wait_us=0)
    with pytest.raises(AffidavitError, match="too many pixels") as refused:
        await batcher.submit(1)
    assert refused.value.reason == "IMAGE_TOO_LARGE"
    await batcher.close()


async def test_an_engine_that_answers_too_few_results_has_failed() -> None:
    batcher = Batcher("short", lambda items: items[1:], capacity=4, max_batch=4, max_wait_us=0)
    with pytest.raises(AffidavitError) as failed:
        await batcher.submit(1)
    assert failed.value.reason == "ENGINE_FAILED"
    assert "answered 0 results for 1" in str(failed.value.__cause__)
    await batcher.close()


async def test_close_lets_what_waits_finish_and_refuses_what_comes(make) -> None:
    engine = GatedEngine()
    batcher = make(engine)
    tasks = start(batcher, 1)
    await engine.busy()
    tasks += start(batcher, 2, 3)
    await until(lambda: batcher.stats().depth == 2)
    closing = asyncio.create_task(batcher.close(deadline_s=DEADLINE_S))
    await until(lambda: batcher._scheduler.closed)
    with pytest.raises(AffidavitError) as refused:
        await batcher.submit(4)
    assert refused.value.reason == "DRAINING"
    engine.gate.set()
    await closing
    assert await asyncio.gather(*tasks) == [1, 4, 9]
    assert batcher.health().unfinished == 0


async def test_close_without_drain_fails_what_waits_and_lets_the_running_batch_finish(make) -> None:
    engine = GatedEngine()
    batcher = make(engine)
    [running] = start(batcher, 1)
    await engine.busy()
    [waiting] = start(batcher, 2)
    await until(lambda: batcher.stats().depth == 1)
    closing = asyncio.create_task(batcher.close(drain=False, deadline_s=DEADLINE_S))
    with pytest.raises(AffidavitError) as failed:
        await waiting
    assert failed.value.reason == "DRAINING"
    engine.gate.set()
    await closing
    assert await running == 1


async def test_an_engine_that_hangs_does_not_keep_close_or_its_callers(make) -> None:
    engine = GatedEngine()
    batcher = make(engine)
    [stuck] = start(batcher, 1)
    await engine.busy()
    [behind] = start(batcher, 2)
    await until(lambda: batcher.stats().depth == 1)
    await batcher.close(deadline_s=0.01)
    results = await asyncio.gather(stuck, behind, return_exceptions=True)
    assert [error.reason for error in results] == ["DRAINING", "DRAINING"]


tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


async def test_the_engine_runs_in_the_context_of_the_batchs_first_item_and_links_every_span() -> None:
    seen: list[str] = []

    def engine(items: list[int]) -> list[int]:
        seen.append(tenant.get())
        return items

    spans.clear()
    batcher = Batcher("traced", engine, capacity=4, max_batch=2, max_wait_us=3_600_000_000)
    tracer = trace.get_tracer("test")

    async def call(who: str, item: int) -> None:
        tenant.set(who)
        with tracer.start_as_current_span(who):
            await batcher.submit(item)

    await asyncio.gather(call("first", 1), call("second", 2))
    await batcher.close()
    assert seen == ["first"]
    finished = {span.name: span for span in spans.get_finished_spans()}
    batch = finished["batch traced"]
    callers = [finished[name].context for name in ("first", "second")]
    assert [link.context for link in batch.links] == callers
    assert batch.parent == callers[0]


async def test_health_counts_quiet_time_only_while_work_is_unfinished(make) -> None:
    engine = GatedEngine()
    batcher = make(engine)
    assert batcher.health() == BatchHealth(unfinished=0, quiet_s=0.0, p99_batch_s=0.0)
    tasks = start(batcher, 1)
    await engine.busy()
    await until(lambda: batcher.health().quiet_s > 0)
    tasks[0].cancel()  # the caller leaves, the engine is still at it
    await asyncio.gather(*tasks, return_exceptions=True)
    assert batcher.health().unfinished == 1
    engine.gate.set()
    await until(lambda: batcher.health().unfinished == 0)
    health = batcher.health()
    assert (health.quiet_s, health.stalled) == (0.0, False)
    assert health.p99_batch_s > 0


@pytest.mark.parametrize(
    ("quiet_s", "p99_batch_s", "stalled"), [(1.9, 0.0, False), (2.1, 0.1, True), (4.9, 1.0, False), (5.1, 1.0, True)]
)
def test_an_engine_is_stalled_after_two_seconds_or_five_times_its_slowest_batches(quiet_s, p99_batch_s, stalled):
    assert BatchHealth(unfinished=1, quiet_s=quiet_s, p99_batch_s=p99_batch_s).stalled is stalled


async def test_scheduling_settings_change_while_it_runs(make) -> None:
    engine = GatedEngine()
    batcher = make(engine, hold_us=None)
    tasks = start(batcher, 1, 2)
    await until(lambda: batcher.stats().depth == 2)
    batcher.configure(max_batch=2)
    engine.gate.set()
    assert await asyncio.gather(*tasks) == [1, 4]
    with pytest.raises(ValueError, match="max_batch"):
        batcher.configure(max_batch=0)


async def test_a_bad_cost_leaves_nothing_behind(make) -> None:
    batcher = make(GatedEngine())
    with pytest.raises(ValueError, match="cost"):
        await batcher.submit(1, cost=0)
    assert batcher.health().unfinished == 0


async def test_metrics_count_items_batches_and_what_waits(make) -> None:
    engine = GatedEngine()
    batcher = make(engine, name="metered", capacity=1)
    [first] = start(batcher, 1)
    await engine.busy()
    [second] = start(batcher, 2)
    await until(lambda: batcher.stats().depth == 1)
    with pytest.raises(AffidavitError):
        await batcher.submit(3)

    def sample(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"affidavit_batch_{name}", {"model": "metered", **labels})

    assert sample("waiting_items") == 1
    engine.gate.set()
    await asyncio.gather(first, second)
    assert (sample("items_total", code="OK"), sample("items_total", code="FULL")) == (2, 1)
    assert (sample("size_items_count"), sample("size_items_sum"), sample("engine_seconds_count")) == (2, 2, 2)
    assert sample("queue_seconds_count") == 2


async def test_thousands_of_items_through_several_threads_all_come_back_right() -> None:
    batcher = Batcher(
        "many", lambda ns: [n * n for n in ns], capacity=5000, max_batch=8, max_wait_us=1000, threads=3, sigma=2
    )
    tasks = [asyncio.create_task(batcher.submit(n, cost=1 + n % 50, group=n % 4)) for n in range(4000)]
    await asyncio.sleep(0)  # all are queued, or in an engine
    for task in tasks[::10]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await batcher.close()
    for n, result in enumerate(results):
        assert result == n * n or (n % 10 == 0 and isinstance(result, asyncio.CancelledError))
    stats = batcher.stats()
    assert stats.taken + stats.cancelled == stats.submitted == 4000
