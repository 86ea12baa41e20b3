"""A probability map becomes rectangles around lines of text."""

import cv2
import numpy as np
import pytest

from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.services.ocr.detection import tensor_size, text_quads
from affidavit.services.ocr.geometry import sides
from affidavit.services.ocr.rules import DetectionRules, OcrRules


@pytest.fixture(scope="module")
def rules() -> DetectionRules:
    return ModelFolder(default_models_folder()).bundle("document").rules(OcrRules).detection


def core(center, size, angle=0.0, probability=0.9) -> np.ndarray:
    """A map with one core of text."""
    picture = np.zeros((400, 600), np.float32)
    cv2.fillPoly(picture, [cv2.boxPoints((center, size, angle)).astype(np.int32)], probability)
    return picture


def test_a_core_grows_back_to_the_size_of_its_line(rules) -> None:
    (quad,) = text_quads(core((300, 200), (200, 10)), rules)
    grow = 200 * 10 * rules.unclip_ratio / (200 + 10)
    width, height = sides(quad[np.newaxis])[0]
    assert width == pytest.approx(200 + grow, abs=3)
    assert height == pytest.approx(10 + grow, abs=3)
    assert quad.mean(axis=0) == pytest.approx([300, 200], abs=1.5)


@pytest.mark.parametrize("angle", [-20, 0, 15])
def test_corners_go_clockwise_from_the_top_left(rules, angle) -> None:
    (quad,) = text_quads(core((300, 200), (200, 12), angle), rules)
    along, down = quad[1] - quad[0], quad[3] - quad[0]
    assert along[0] > 0
    assert down[1] > 0
    assert np.degrees(np.arctan2(along[1], along[0])) == pytest.approx(angle, abs=1.5)
    assert along[0] * down[1] - along[1] * down[0] > 0


def test_lines_are_found_apart_and_specks_and_faint_regions_not_at_all(rules) -> None:
    picture = core((300, 100), (200, 10)) + core((300, 130), (200, 10)) + core((100, 300), (1, 1))
    picture += core((400, 300), (150, 12), probability=0.4)
    assert len(text_quads(picture, rules)) == 2


def test_no_more_lines_than_allowed(rules) -> None:
    picture = sum(core((300, y), (200, 8)) for y in range(40, 380, 40))
    assert len(text_quads(picture, rules.model_copy(update={"max_boxes": 3}))) == 3


def test_an_empty_map_has_no_lines(rules) -> None:
    assert text_quads(np.zeros((64, 64), np.float32), rules).shape == (0, 4, 2)


@pytest.mark.parametrize(
    ("page", "tensor"),
    [
        ((3300, 2550), (960, 768)),  # a letter at 300 dpi
        ((640, 480), (960, 704)),  # a small page is enlarged
        ((430, 323), (832, 640)),  # ... but not further than allowed
        ((54, 1167), (64, 1152)),  # a single line is not shrunk away
        ((1, 65535), (64, 3840)),  # the longest page is still bounded
        ((20, 20), (64, 64)),
    ],
)
def test_a_page_becomes_a_tensor_of_few_sizes(page, tensor) -> None:
    assert tensor_size(*page, 960, 2.0) == tensor
