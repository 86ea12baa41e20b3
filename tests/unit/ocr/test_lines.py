"""Readings become lines and words; long lines are cut at gaps and joined without loss."""

from itertools import pairwise

import cv2
import numpy as np
import pytest

from affidavit.services.ocr import longlines
from affidavit.services.ocr.lines import Line, joined, line, mean
from affidavit.services.ocr.longlines import Piece
from affidavit.services.ocr.recognition import Reading


def quad(left: float, top: float, width: float, height: float) -> np.ndarray:
    right, bottom = left + width, top + height
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float32)


def reading(text: str, confidence: float = 0.9, pitch: float = 20) -> Reading:
    """Characters at even distances."""
    return Reading(list(text), [confidence] * len(text), [pitch * (i + 0.5) for i in range(len(text))])


def test_words_are_what_stands_between_blanks() -> None:
    found = line(reading("to be  or"), quad(0, 0, 180, 48), 180)
    assert found is not None
    assert found.text == "to be or"
    assert [word.text for word in found.words] == ["to", "be", "or"]


def test_words_have_their_own_place_on_the_line() -> None:
    found = line(reading("ab cd"), quad(100, 50, 100, 48), 100)
    assert found is not None
    spans = [(word.quad[0, 0], word.quad[1, 0]) for word in found.words]
    assert spans == [(100, 140), (160, 200)]
    assert all(word.quad[0, 1] == 50 and word.quad[3, 1] == 98 for word in found.words)


def test_confidence_is_the_mean_of_the_characters_without_blanks() -> None:
    read = Reading(list("a b"), [0.5, 0.0, 1.0], [10, 30, 50])
    found = line(read, quad(0, 0, 60, 48), 60)
    assert found is not None
    assert mean(found.confidence) == 0.75


@pytest.mark.parametrize("text", ["", "   "])
def test_a_line_of_nothing_is_no_line(text) -> None:
    assert line(reading(text), quad(0, 0, 60, 48), 60) is None


def lines_at(*places: tuple[float, float]) -> list[Line]:
    found = [line(reading("word"), quad(left, 0, 80, height), 80) for left, height in places]
    return [f for f in found if f]


def test_neighbours_of_a_row_are_one_line() -> None:
    (one,) = joined(lines_at((0, 40), (90, 42)))
    assert one.text == "word word"
    assert one.quad[:, 0].tolist() == [0, 170, 170, 0]
    assert len(one.words) == 2


def test_cells_of_a_table_stay_lines_of_their_own() -> None:
    assert len(joined(lines_at((0, 40), (160, 40)))) == 2


def test_a_small_line_beside_a_large_one_stays_its_own() -> None:
    assert len(joined(lines_at((0, 20), (90, 40)))) == 2


def test_a_line_that_fits_is_one_piece() -> None:
    assert longlines.pieces(np.zeros((60, 400), np.uint8), quad(0, 0, 400, 60), 320, 640) == [
        Piece(0, 320, -np.inf, np.inf)
    ]


def test_a_long_line_is_cut_at_gaps_into_overlapping_pieces_that_fit() -> None:
    page = np.full((48, 4000), 255, np.uint8)
    words = range(0, 4000, 200)
    for left in words:
        cv2.rectangle(page, (left, 8), (left + 160, 40), 0, -1)
    found = longlines.pieces(page, quad(0, 0, 4000, 48), 4000, 1600)
    assert found[0].left == 0
    assert found[-1].right == 4000
    assert all(piece.right - piece.left <= 1600 for piece in found)
    for before, after in pairwise(found):
        assert before.end == after.start
        assert before.right - after.left == 2 * longlines.OVERLAP
        assert 160 <= before.end % 200 < 200  # between two words


def test_pieces_join_to_what_one_reading_would_say() -> None:
    text = "the quick brown fox jumps over the lazy dog"
    whole = reading(text)
    cut = 16 * 20.0  # inside the blank before "fox"
    parts = [Piece(0, int(cut) + 48, -np.inf, cut), Piece(int(cut) - 48, 20 * len(text), cut, np.inf)]
    readings = []
    for piece in parts:
        seen = [i for i, at in enumerate(whole.positions) if piece.left <= at < piece.right]
        readings.append(
            Reading([text[i] for i in seen], [0.9] * len(seen), [whole.positions[i] - piece.left for i in seen])
        )
    assert "".join(longlines.join(parts, readings).text) == text


@pytest.mark.parametrize("seen_by", ["both", "left", "right"])
def test_a_blank_at_a_cut_is_said_once(seen_by) -> None:
    parts = [Piece(0, 148, -np.inf, 100.0), Piece(52, 200, 100.0, np.inf)]
    left = Reading(list("ab "), [0.9] * 3, [60.0, 80.0, 98.0])
    right = Reading(list(" cd"), [0.9] * 3, [103.0 - 52, 120.0 - 52, 140.0 - 52])
    if seen_by == "left":
        right = Reading(right.text[1:], right.confidence[1:], right.positions[1:])
    if seen_by == "right":
        left = Reading(left.text[:2], left.confidence[:2], left.positions[:2])
    assert "".join(longlines.join(parts, [left, right]).text) == "ab cd"
