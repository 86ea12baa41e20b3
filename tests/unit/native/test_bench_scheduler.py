"""The scheduler's benchmark measures what it says, and its policy is worth having."""

import pytest

from affidavit.tools.bench import arrivals, scheduler

FIRST_RECORDING = (1429, arrivals.Arrival(at_us=1347999, width=79), 672736)


@pytest.fixture(scope="module")
def figures() -> dict[str, float | int | str | None]:
    return scheduler.run(quick=True)


def test_figures_are_flat_numbers(figures) -> None:
    assert all(isinstance(value, int | float) for value in figures.values())
    assert {"operations_per_s", "python_operations_per_s", "p99_ms", "fifo_p99_ms", "throughput_ratio"} <= set(figures)
    assert len([key for key in figures if key.startswith("p99_ms_wait_")]) == 16


def test_compatible_batches_beat_fifo_in_waiting_and_throughput(figures) -> None:
    assert figures["p99_ms"] < figures["fifo_p99_ms"] / 2
    assert figures["throughput_ratio"] > 1.5


def test_under_overload_the_policy_does_not_fall_back_to_fifo(figures) -> None:
    assert figures["overload_p99_ms"] < figures["overload_fifo_p99_ms"] / 4
    assert figures["overload_throughput_ratio"] > 1.5


def test_recorded_arrivals_are_the_same_ever_after() -> None:
    trace = arrivals.record(50, 0.6)
    assert trace == arrivals.record(50, 0.6)
    assert (len(trace), trace[0], sum(arrival.width for arrival in trace)) == FIRST_RECORDING


def test_every_line_is_recognised_once_and_none_before_it_arrives() -> None:
    trace = arrivals.record(40, 1.4)
    life = scheduler.ours(trace)
    assert len(life.waits_us) == len(trace)
    assert life.waits_us[0] >= 0
