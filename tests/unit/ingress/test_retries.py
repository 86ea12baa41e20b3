"""Retries add at most a tenth to the load, whatever breaks."""

from affidavit.services.ingress.peers import RetryBudget, backoff_s


def test_a_long_outage_gets_a_tenth_of_its_calls_retried() -> None:
    budget = RetryBudget(ratio=0.1, reserve=10)
    retries = 0
    for _ in range(1000):
        budget.earn()
        retries += budget.spend()
    assert 100 <= retries <= 110


def test_what_is_saved_in_good_times_is_bounded() -> None:
    budget = RetryBudget(ratio=0.1, reserve=10)
    for _ in range(10_000):
        budget.earn()
    assert sum(budget.spend() for _ in range(100)) == 10


def test_backoff_grows_and_is_bounded() -> None:
    assert all(0.05 <= backoff_s(attempt) <= min(2.0, 0.2 * 2 ** (attempt - 1)) for attempt in range(1, 40))
