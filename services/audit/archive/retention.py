"""Until when a segment is kept."""

from datetime import UTC, datetime, timedelta

MIN_RETENTION_DAYS = 180
_SHORTEST = timedelta(days=1)  # a lock must end in the future, also for records that are old when they are archived


def retain_until(newest: datetime, retention: timedelta, now: datetime | None = None) -> datetime:
    """The date, UTC and whole seconds, of a segment whose newest record was stamped at `newest`."""
    until = max(newest + retention, (now or datetime.now(UTC)) + _SHORTEST)
    return until.replace(microsecond=0) + timedelta(seconds=1)  # never a part of a second too early
