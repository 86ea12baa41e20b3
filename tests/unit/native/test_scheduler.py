"""What the batch scheduler promises: who is taken next, with whom, and that nobody is forgotten."""

import threading

import pytest

from affidavit._native import Admission, Batch, DynamicBatchScheduler, Joined, Trigger


def scheduler(**changes) -> DynamicBatchScheduler:
    settings = {"capacity": 100, "max_batch": 4, "max_wait_us": 1000, "sigma": 1.0, "ratio": 1.25}
    return DynamicBatchScheduler(**{**settings, "virtual_time": True, **changes})


def submit(queue: DynamicBatchScheduler, *costs: float, group: int = 0, first_id: int = 0) -> None:
    for i, cost in enumerate(costs):
        assert queue.submit(first_id + i, cost, group) is Admission.ACCEPTED


def taken(queue: DynamicBatchScheduler) -> Batch:
    batch = queue.next_batch(0)
    assert batch is not None
    return batch


def test_compatible_requests_share_a_batch_and_an_incompatible_one_is_passed_over() -> None:
    queue = scheduler(hold_us=0)
    submit(queue, 100, 500, 110, 100)
    batch = taken(queue)
    assert batch.ids == [0, 2, 3]
    assert batch.joined == [Joined.LEAD, Joined.COMPATIBLE, Joined.COMPATIBLE]
    assert taken(queue).ids == [1]


def test_while_all_costs_are_equal_a_stated_ratio_decides_and_after_that_the_spread() -> None:
    queue = scheduler(hold_us=0, max_batch=8)
    submit(queue, 100, 100, 125, 81, 112, 100)
    # 125 is within the ratio of 100; then mean 108.3, deviation 11.8: 81 is out, 112 in, and 100 as well.
    assert taken(queue).ids == [0, 1, 2, 4, 5]


def test_overdue_requests_that_fit_go_first_oldest_first_whatever_they_cost() -> None:
    queue = scheduler()
    submit(queue, 1, 1000)
    queue.advance(500)
    submit(queue, 1, first_id=10)
    queue.advance(500)
    batch = taken(queue)
    assert (batch.trigger, batch.ids) == (Trigger.OVERDUE, [0, 1, 10])
    assert batch.joined == [Joined.OVERDUE, Joined.OVERDUE, Joined.COMPATIBLE]
    assert batch.queue_us == [1000, 1000, 500]


def test_when_more_are_overdue_than_fit_the_oldest_leads_and_costs_matter_again() -> None:
    queue = scheduler()
    submit(queue, 1000, 10, 1000, 10, 10, 10)
    queue.advance(1000)
    batch = taken(queue)
    assert batch.ids == [0, 2]
    assert batch.joined == [Joined.OVERDUE, Joined.COMPATIBLE]
    assert taken(queue).ids == [1, 3, 4, 5]


def test_a_full_batch_does_not_wait_for_an_older_request_that_it_cannot_take() -> None:
    queue = scheduler()
    submit(queue, 1000, 10, 10, 10)
    assert queue.next_batch(0) is None
    submit(queue, 10, first_id=4)
    batch = taken(queue)
    assert (batch.trigger, batch.ids) == (Trigger.FULL, [1, 2, 3, 4])
    queue.advance(1000)
    assert taken(queue).ids == [0]


def test_an_incompatible_request_under_a_stream_of_others_is_taken_when_it_is_overdue() -> None:
    queue = scheduler()
    submit(queue, 1000, first_id=999)
    for i in range(0, 40, 4):
        submit(queue, 10, 10, 10, 10, first_id=i)
        queue.advance(100)
        if 999 in taken(queue).ids:
            assert queue.now_us == 1000
            return
    pytest.fail("it was never taken")


def test_a_batch_has_one_group_also_when_everything_is_overdue() -> None:
    queue = scheduler()
    for i in range(6):
        submit(queue, 10, group=i % 2, first_id=i)
    queue.advance(5000)
    assert [(b.group, b.ids) for b in (taken(queue), taken(queue))] == [(0, [0, 2, 4]), (1, [1, 3, 5])]


def test_a_canary_goes_before_everything_and_has_room_when_the_queue_has_none() -> None:
    queue = scheduler(capacity=2)
    submit(queue, 10, 10)
    assert queue.submit(2, 10) is Admission.FULL
    assert queue.submit(3, 10, canary=True) is Admission.ACCEPTED
    batch = taken(queue)
    assert (batch.trigger, batch.ids) == (Trigger.CANARY, [3, 0, 1])
    assert batch.joined == [Joined.CANARY, Joined.COMPATIBLE, Joined.COMPATIBLE]


def test_the_canarys_lane_is_bounded_too() -> None:
    queue = scheduler()
    verdicts = [queue.submit(i, 10, canary=True) for i in range(17)]
    assert verdicts == [Admission.ACCEPTED] * 16 + [Admission.FULL]


def test_an_idle_engine_holds_a_batch_open_for_hold_us_and_no_longer() -> None:
    queue = scheduler(hold_us=200)
    submit(queue, 10)
    queue.advance(199)
    assert queue.next_batch(0) is None
    assert queue.due_us == 200
    queue.advance(1)
    assert taken(queue).trigger is Trigger.HELD


def test_settings_change_while_it_runs() -> None:
    queue = scheduler()
    submit(queue, 10, 30)
    queue.configure(max_batch=2, sigma=3.0)
    assert queue.next_batch(0) is None
    queue.configure(max_wait_us=0)
    assert taken(queue).ids == [0, 1]
    submit(queue, 10, 10, 10)
    queue.configure(max_wait_us=1000, hold_us=0)
    assert taken(queue).ids == [0, 1]


def test_a_cancelled_request_is_in_no_batch() -> None:
    queue = scheduler(hold_us=0)
    submit(queue, 10, 10)
    assert queue.cancel(0)
    assert not queue.cancel(0)
    assert taken(queue).ids == [1]
    assert not queue.cancel(1)


def test_after_close_what_is_left_is_given_out_and_nothing_new_is_taken() -> None:
    queue = scheduler()
    submit(queue, 10, 10, 500)
    queue.close()
    assert queue.submit(9, 10) is Admission.CLOSED
    assert taken(queue).trigger is Trigger.CLOSED
    assert taken(queue).ids == [2]
    assert queue.next_batch(0) is None
    assert queue.closed


def test_counters_tell_what_happened() -> None:
    queue = scheduler(capacity=4, max_batch=3)
    submit(queue, 10, 10, 10, 10)
    queue.submit(9, 10)
    queue.cancel(3)
    taken(queue)
    submit(queue, 10)
    queue.advance(1000)
    taken(queue)
    stats = queue.stats()
    assert (stats.submitted, stats.rejected, stats.cancelled, stats.taken) == (5, 1, 1, 4)
    assert (stats.batches, stats.full_batches, stats.overdue_batches) == (2, 1, 1)
    assert (stats.sizes, stats.depth, stats.max_depth) == ([0, 1, 0, 1], 0, 4)


@pytest.mark.parametrize(
    "settings",
    [
        {"capacity": 0},
        {"max_batch": 0},
        {"max_batch": 4097},
        {"max_wait_us": -1},
        {"hold_us": -1},
        {"sigma": -1.0},
        {"sigma": float("nan")},
        {"ratio": 0.9},
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        scheduler(**settings)
    if "capacity" not in settings and "ratio" not in settings:
        with pytest.raises(ValueError, match=next(iter(settings))):
            scheduler().configure(**settings)


@pytest.mark.parametrize("cost", [0.0, -1.0, float("inf"), float("nan")])
def test_a_cost_that_is_no_cost_is_refused(cost: float) -> None:
    with pytest.raises(ValueError, match="cost"):
        scheduler().submit(1, cost)


def test_an_id_that_waits_already_is_refused() -> None:
    queue = scheduler()
    submit(queue, 10)
    with pytest.raises(ValueError, match="already waiting"):
        queue.submit(0, 10)


def test_close_wakes_every_waiting_engine_thread() -> None:
    queue = scheduler(virtual_time=False)
    answers: list[Batch | None] = []
    threads = [threading.Thread(target=lambda: answers.append(queue.next_batch(60))) for _ in range(4)]
    for thread in threads:
        thread.start()
    queue.close()
    for thread in threads:
        thread.join(30)
    assert answers == [None] * 4


def test_a_waiting_thread_sees_virtual_time_pass() -> None:
    queue = scheduler()
    submit(queue, 10)
    answers: list[Batch | None] = []
    thread = threading.Thread(target=lambda: answers.append(queue.next_batch(60)))
    thread.start()
    queue.advance(1000)
    thread.join(30)
    assert answers[0] is not None


def test_many_submitters_and_engines_lose_nothing_and_repeat_nothing() -> None:
    queue = DynamicBatchScheduler(capacity=64, max_batch=5, max_wait_us=200, sigma=1.0)
    per_thread, submitters, engines = 2000, 4, 3
    seen: list[list[int]] = [[] for _ in range(engines)]
    cancelled: list[set[int]] = [set() for _ in range(submitters)]
    sizes: list[int] = []

    def submitter(number: int) -> None:
        for i in range(per_thread):
            id = number * per_thread + i
            while queue.submit(id, 10 + id % 7, group=id % 3) is Admission.FULL:
                pass
            if id % 11 == 0 and queue.cancel(id):
                cancelled[number].add(id)

    def engine(number: int) -> None:
        while not (queue.closed and queue.stats().depth == 0):
            if batch := queue.next_batch(0.05):
                assert {id % 3 for id in batch.ids} == {batch.group}
                sizes.append(len(batch))
                seen[number].extend(batch.ids)

    workers = [threading.Thread(target=engine, args=(i,)) for i in range(engines)]
    feeders = [threading.Thread(target=submitter, args=(i,)) for i in range(submitters)]
    for thread in workers + feeders:
        thread.start()
    for thread in feeders:
        thread.join(60)
    queue.close()
    for thread in workers:
        thread.join(60)
    everyone = sorted(id for ids in seen for id in ids)
    assert everyone == sorted(set(range(submitters * per_thread)) - set().union(*cancelled))
    assert max(sizes) <= 5
    assert queue.stats().max_depth <= 64
