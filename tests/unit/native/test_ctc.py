"""CTC decoding says what a slow reading of the same probabilities says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from affidavit import _native


def slow_reading(rows: np.ndarray, blank: int) -> list[tuple[int, int, float]]:
    """Characters as (class, step of its highest probability, that probability)."""
    characters: list[tuple[int, int, float]] = []
    previous = blank
    for step, row in enumerate(rows):
        index = int(np.argmax(row))
        if index not in (blank, previous):
            characters.append((index, step, float(row[index])))
        elif index != blank and row[index] > characters[-1][2]:
            characters[-1] = (index, step, float(row[index]))
        previous = index
    return characters


def read(path: _native.CtcPath) -> list[tuple[int, int, float]]:
    return list(zip(path.indices.tolist(), path.positions.tolist(), path.confidence.tolist(), strict=True))


# Few distinct values, so that ties and repeats are common.
few_values = st.integers(0, 4).map(lambda i: np.float32(i) / np.float32(4))


@given(
    probs=st.tuples(st.integers(1, 3), st.integers(0, 12), st.integers(1, 6)).flatmap(
        lambda shape: arrays(np.float32, shape, elements=few_values)
    ),
    blank=st.integers(0, 5),
)
def test_every_line_decodes_as_the_slow_reading_does(probs: np.ndarray, blank: int) -> None:
    blank %= probs.shape[2]
    paths = _native.ctc_greedy(probs, blank)
    assert [read(path) for path in paths] == [slow_reading(rows, blank) for rows in probs]


@settings(max_examples=60)
@given(classes=st.integers(1, 3000), seed=st.integers(0, 2**32 - 1))
def test_the_most_probable_class_is_found_wherever_it_stands(classes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    probs = (random.integers(0, 50, (5, classes)) / 50).astype(np.float32)
    assert read(_native.ctc_greedy(probs)[0]) == slow_reading(probs, 0)


def test_repeats_are_one_character_and_a_blank_between_makes_two() -> None:
    probs = np.eye(3, dtype=np.float32)[[1, 1, 0, 1, 2, 2, 0]]
    probs[1, 1] = 2  # the second step of the first run is its most probable
    path = _native.ctc_greedy(probs)[0]
    assert (path.indices.tolist(), path.positions.tolist()) == ([1, 1, 2], [1, 3, 4])
    assert len(path) == 3


def test_a_slice_of_a_larger_array_is_read_in_place() -> None:
    probs = np.random.default_rng(1).random((4, 9, 700), dtype=np.float32)
    part = probs[::2, 2:7, :]
    assert [read(p) for p in _native.ctc_greedy(part)] == [slow_reading(rows, 0) for rows in part]


def test_results_outlive_the_path_they_came_from() -> None:
    indices = _native.ctc_greedy(np.eye(50, dtype=np.float32))[0].indices
    assert indices.tolist() == list(range(1, 50))
    with pytest.raises(ValueError, match="read-only"):
        indices[0] = 7


def test_nothing_but_blanks_is_an_empty_line() -> None:
    assert read(_native.ctc_greedy(np.eye(4, dtype=np.float32)[[0, 0, 0]])[0]) == []
    assert read(_native.ctc_greedy(np.zeros((0, 4), np.float32))[0]) == []
    assert _native.ctc_greedy(np.zeros((0, 3, 4), np.float32)) == []


def test_an_engine_that_answers_nan_is_caught() -> None:
    probs = np.full((3, 1000), 0.5, np.float32)
    probs[1] = np.nan
    with pytest.raises(ValueError, match="time step 1"):
        _native.ctc_greedy(probs)


@pytest.mark.parametrize(
    "probs",
    [
        np.zeros((3, 4), np.float64),
        np.zeros(4, np.float32),
        np.zeros((1, 1, 3, 4), np.float32),
        np.zeros((3, 8), np.float32)[:, ::2],
    ],
)
def test_another_shape_or_type_is_refused_with_what_was_expected(probs: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"float32 \(T, C\)"):
        _native.ctc_greedy(probs)


@pytest.mark.parametrize("blank", [-1, 4])
def test_a_blank_that_is_no_class_is_refused(blank: int) -> None:
    with pytest.raises(ValueError, match="blank"):
        _native.ctc_greedy(np.zeros((3, 4), np.float32), blank)


SPACE = 2
# Steps: character 1, then the doubted one (class 0 is "no character"), then character 3.
doubted = np.array([[0, 1, 0, 0], [0.7, 0, 0.3, 0], [0.9, 0, 0.1, 0], [0, 0, 0, 1]], np.float32)


@pytest.mark.parametrize(("least", "read_as"), [(0.2, [1, SPACE, 3]), (0.3, [1, SPACE, 3]), (0.31, [1, 3])])
def test_a_doubted_space_between_two_characters_is_read_from_its_least_probability_on(least, read_as) -> None:
    path = _native.ctc_greedy(doubted, space=SPACE, least_space=least)[0]
    assert path.indices.tolist() == read_as
    if SPACE in read_as:
        assert read(path)[1] == (SPACE, 1, np.float32(0.3))


def test_no_space_is_doubted_unless_asked_for() -> None:
    assert read(_native.ctc_greedy(doubted)[0]) == [(1, 0, 1.0), (3, 3, 1.0)]


@pytest.mark.parametrize(
    "steps",
    [
        [[0.7, 0, 0.3, 0], [0, 1, 0, 0]],  # before the first character
        [[0, 1, 0, 0], [0.7, 0, 0.3, 0]],  # after the last
        [[0, 1, 0, 0], [0.7, 0, 0.3, 0], [0, 0, 1, 0], [0.7, 0, 0.3, 0], [0, 0, 0, 1]],  # beside a sure one
    ],
)
def test_a_space_is_doubted_only_between_characters_without_one(steps) -> None:
    probs = np.array(steps, np.float32)
    assert read(_native.ctc_greedy(probs, space=SPACE, least_space=0.2)[0]) == slow_reading(probs, 0)


@pytest.mark.parametrize(("space", "least"), [(4, 0.5), (-2, 0.5), (2, 0.0), (2, 1.5), (2, float("nan"))])
def test_a_space_out_of_range_is_refused(space, least) -> None:
    with pytest.raises(ValueError, match="space"):
        _native.ctc_greedy(doubted, space=space, least_space=least)
