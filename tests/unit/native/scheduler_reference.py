"""The scheduler's policy written a second time, slowly: what the native one must decide, request by request."""

from dataclasses import dataclass, field

CANARY_LANE = 16
LEADS_TRIED = 32


@dataclass(frozen=True)
class Request:
    id: int
    cost: float
    group: int
    arrival_us: int


@dataclass
class Costs:
    values: list[float] = field(default_factory=list)
    mean: float = 0.0
    squares: float = 0.0

    def add(self, cost: float) -> None:
        self.values.append(cost)
        before = cost - self.mean
        self.mean += before / len(self.values)
        self.squares += before * (cost - self.mean)

    def admit(self, cost: float, sigma: float, ratio: float) -> bool:
        if len(set(self.values)) == 1:
            return cost * ratio >= self.values[0] and cost <= self.values[0] * ratio
        off = cost - self.mean
        return off * off * len(self.values) <= sigma * sigma * self.squares


@dataclass
class Reference:
    capacity: int
    max_batch: int
    max_wait_us: int
    sigma: float
    ratio: float
    hold_us: int | None = None
    now_us: int = 0
    closed: bool = False
    waiting: list[Request] = field(default_factory=list)
    canaries: list[Request] = field(default_factory=list)

    def submit(self, id: int, cost: float, group: int, canary: bool) -> str:
        if self.closed:
            return "CLOSED"
        lane, room = (self.canaries, CANARY_LANE) if canary else (self.waiting, self.capacity)
        if len(lane) >= room:
            return "FULL"
        lane.append(Request(id, cost, group, self.now_us))
        return "ACCEPTED"

    def cancel(self, id: int) -> bool:
        before = len(self.waiting) + len(self.canaries)
        self._drop({id})
        return len(self.waiting) + len(self.canaries) < before

    def next_batch(self) -> tuple[str, int, list[int], list[str], list[int]] | None:
        """(trigger, group, ids, why each joined, microseconds each waited)"""
        trigger, members = self._choose()
        if not members:
            return None
        self._drop({request.id for request, _ in members})
        return (
            trigger,
            members[0][0].group,
            [request.id for request, _ in members],
            [why for _, why in members],
            [self.now_us - request.arrival_us for request, _ in members],
        )

    def _choose(self) -> tuple[str, list[tuple[Request, str]]]:
        if self.canaries:
            return "CANARY", self._gather(self.waiting, self.canaries[0])
        if not self.waiting:
            return "", []
        waited = self.now_us - self.waiting[0].arrival_us
        if waited >= self.max_wait_us:
            return "OVERDUE", self._gather(self.waiting)
        if self.hold_us is not None and waited >= self.hold_us:
            return "HELD", self._gather(self.waiting)
        if self.closed:
            return "CLOSED", self._gather(self.waiting)
        groups = [request.group for request in self.waiting]
        leads = [i for i, group in enumerate(groups) if groups.count(group) >= self.max_batch]
        for i in leads[:LEADS_TRIED]:
            members = self._gather(self.waiting[i:])
            if len(members) == self.max_batch:
                return "FULL", members
        return "", []

    def _gather(self, queue: list[Request], canary: Request | None = None) -> list[tuple[Request, str]]:
        members: list[tuple[Request, str]] = []
        costs = Costs()
        if canary:
            members.append((canary, "CANARY"))
            costs.add(canary.cost)
        group = canary.group if canary else queue[0].group
        mates = [request for request in queue if request.group == group]
        late = [request for request in mates if self.now_us - request.arrival_us >= self.max_wait_us]
        all_fit = len(late) + len(members) <= self.max_batch
        for request in mates:
            if len(members) == self.max_batch:
                break
            if request in late and (all_fit or not members):
                members.append((request, "OVERDUE"))
            elif not members:
                members.append((request, "LEAD"))
            elif costs.admit(request.cost, self.sigma, self.ratio):
                members.append((request, "COMPATIBLE"))
            else:
                continue
            costs.add(request.cost)
        return members

    def _drop(self, ids: set[int]) -> None:
        self.waiting = [request for request in self.waiting if request.id not in ids]
        self.canaries = [request for request in self.canaries if request.id not in ids]
