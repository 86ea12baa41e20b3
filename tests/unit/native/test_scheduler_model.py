"""Whatever happens in whatever order, the native scheduler decides as the slow one does, and keeps its promises."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scheduler_reference import CANARY_LANE, Reference

from affidavit._native import Batch, DynamicBatchScheduler

# Equal costs, near ones, far ones, and ones that no float holds exactly.
costs = st.one_of(
    st.sampled_from([1.0, 1.25, 10.0, 10.0, 11.0, 12.5, 100.0]), st.floats(0.1, 1000, exclude_min=True), st.just(0.1)
)


class Scheduling(RuleBasedStateMachine):
    @initialize(
        capacity=st.integers(1, 40),
        max_batch=st.integers(1, 6),
        max_wait_us=st.integers(0, 50),
        sigma=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        ratio=st.sampled_from([1.0, 1.25, 4.0]),
        hold_us=st.none() | st.integers(0, 60),
    )
    def begin(self, **chosen) -> None:
        self.native = DynamicBatchScheduler(**chosen, virtual_time=True)
        self.model = Reference(**chosen)
        self.next_id = 0
        self.arrivals: dict[int, tuple[int, int]] = {}  # id -> (group, arrival) of all that wait

    @rule(cost=costs, group=st.integers(0, 2), canary=st.sampled_from([False] * 9 + [True]), many=st.integers(1, 4))
    def submit(self, cost: float, group: int, canary: bool, many: int) -> None:
        for _ in range(many):
            verdict = self.native.submit(self.next_id, cost, group, canary=canary)
            assert verdict.name == self.model.submit(self.next_id, cost, group, canary)
            if verdict.name == "ACCEPTED":
                self.arrivals[self.next_id] = (group, self.model.now_us)
            self.next_id += 1

    @rule(back=st.integers(1, 30))
    def cancel(self, back: int) -> None:
        id = max(0, self.next_id - back)
        cancelled = self.native.cancel(id)
        assert cancelled == self.model.cancel(id) == (id in self.arrivals)
        self.arrivals.pop(id, None)

    @rule(us=st.integers(0, 40))
    def advance(self, us: int) -> None:
        self.native.advance(us)
        self.model.now_us += us

    @rule(max_batch=st.integers(1, 6), max_wait_us=st.integers(0, 50), sigma=st.sampled_from([0.0, 1.0, 2.0]))
    def configure(self, **changes) -> None:
        self.native.configure(**changes)
        for name, value in changes.items():
            setattr(self.model, name, value)

    @rule(times=st.integers(1, 3))
    def take(self, times: int) -> None:
        for _ in range(times):
            self.take_one()

    def take_one(self) -> Batch | None:
        oldest = min((id for id, (_, at) in self.arrivals.items() if self.overdue(at)), default=None)
        canary_first = bool(self.model.canaries)
        expected = self.model.next_batch()
        batch = self.native.next_batch(0)
        if batch is None:
            assert expected is None
            assert oldest is None, "an overdue request waits although an engine is free"
            return None
        got = (batch.trigger.name, batch.group, batch.ids, [why.name for why in batch.joined], batch.queue_us)
        assert got == expected
        assert 1 <= len(batch) <= self.model.max_batch
        assert {self.arrivals.pop(id)[0] for id in batch.ids} == {batch.group}  # once each, and of one group
        assert batch.ids[canary_first:] == sorted(batch.ids[canary_first:]), "not in the order of arrival"
        assert canary_first or oldest is None or batch.ids[0] == oldest, "the oldest overdue request does not lead"
        return batch

    def overdue(self, arrival: int) -> bool:
        return self.model.now_us - arrival >= self.model.max_wait_us

    @rule()
    def close(self) -> None:
        if self.next_id > 60:  # late, so that most of a run happens before it
            self.native.close()
            self.model.closed = True

    @invariant()
    def the_queue_is_bounded_and_nothing_is_lost(self) -> None:
        if not hasattr(self, "native"):
            return
        stats = self.native.stats()
        assert stats.depth == len(self.arrivals) <= self.model.capacity + CANARY_LANE
        assert stats.submitted == stats.taken + stats.cancelled + stats.depth
        assert sum(n * count for n, count in enumerate(stats.sizes)) == stats.taken

    def teardown(self) -> None:
        if hasattr(self, "native"):
            self.native.close()
            self.model.closed = True
            while self.take_one():
                pass
            assert not self.arrivals, "closed with requests left behind"


TestScheduling = Scheduling.TestCase
TestScheduling.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
