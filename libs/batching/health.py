"""Is an engine stuck? The facts, and the one rule about them."""

import time
from collections import deque
from dataclasses import dataclass

_REMEMBERED = 512  # batches that the 99th percentile is taken over

LEAST_LIMIT_S = 2.0
P99_FACTOR = 5.0


@dataclass(frozen=True)
class BatchHealth:
    """What a readiness check needs to know of one batcher.

    Attributes:
        unfinished: items that wait or are in an engine now.
        quiet_s: seconds in which no batch has finished although there was unfinished work; 0 when there is none.
        p99_batch_s: 99th percentile of the last 512 batches' engine time; 0 before the first.
    """

    unfinished: int
    quiet_s: float
    p99_batch_s: float

    @property
    def limit_s(self) -> float:
        """Quiet that is still healthy: max(2 s, 5 times the 99th percentile of batch time)."""
        return max(LEAST_LIMIT_S, P99_FACTOR * self.p99_batch_s)

    @property
    def stalled(self) -> bool:
        """Whether the engine must count as stuck. A long queue alone is overload, never this."""
        return self.quiet_s > self.limit_s


class Pulse:
    """Collects the facts: `work_began` on the event loop, `batch_finished` from engine threads."""

    def __init__(self) -> None:
        self._quiet_since = time.monotonic()
        self._batch_seconds: deque[float] = deque(maxlen=_REMEMBERED)

    def work_began(self) -> None:
        """The first item after none: an idle hour before it is not a stall."""
        self._quiet_since = time.monotonic()

    def batch_finished(self, seconds: float) -> None:
        """A batch left the engine, well or not, after so many seconds there."""
        self._batch_seconds.append(seconds)
        self._quiet_since = time.monotonic()

    def read(self, unfinished: int) -> BatchHealth:
        seconds = sorted(self._batch_seconds.copy())
        p99 = seconds[int(0.99 * (len(seconds) - 1))] if seconds else 0.0
        quiet = time.monotonic() - self._quiet_since if unfinished else 0.0
        return BatchHealth(unfinished=unfinished, quiet_s=quiet, p99_batch_s=p99)
