"""Resizing and cropping see what OpenCV sees, within a gray level, and write only where they should."""

import math

import cv2
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from affidavit import _native

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PLAIN: tuple[tuple[float, float, float], tuple[float, float, float], float] = ((0, 0, 0), (1, 1, 1), 1.0)

sizes = st.integers(1, 90)
seeds = st.integers(0, 2**32 - 1)


def noise(seed: int, height: int, width: int, channels: int = 3) -> np.ndarray:
    shape = (height, width, channels) if channels == 3 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def planes(image: np.ndarray) -> np.ndarray:
    """OpenCV's (H, W) or (H, W, 3) as float (3, H, W)."""
    image = np.atleast_3d(image).astype(np.float32)
    return np.ascontiguousarray(np.broadcast_to(image, (*image.shape[:2], 3)).transpose(2, 0, 1))


def upright(corners: list[tuple[float, float]], height: int, width: int) -> np.ndarray:
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    return cv2.getPerspectiveTransform(np.array(corners, np.float32), target)


@st.composite
def quads(draw: st.DrawFn) -> np.ndarray:
    """A rectangle somewhere near the page, turned, and its corners pulled a little: convex and clockwise."""
    x, y = draw(st.floats(-20, 100)), draw(st.floats(-20, 100))
    width, height = draw(st.floats(8, 90)), draw(st.floats(8, 40))
    turn = draw(st.floats(0, 2 * math.pi))
    pull = draw(st.lists(st.floats(-0.15, 0.15), min_size=8, max_size=8))
    pulled = np.array(pull).reshape(4, 2) * min(width, height)
    box = np.array([[0, 0], [width, 0], [width, height], [0, height]]) + pulled
    rotation = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    return (box @ rotation + (x, y)).astype(np.float32)


@given(seed=seeds, height=sizes, width=sizes, out_h=sizes, out_w=sizes, channels=st.sampled_from([1, 3]))
def test_linear_resizing_is_opencvs_within_a_gray_level(seed, height, width, out_h, out_w, channels) -> None:
    image = noise(seed, height, width, channels)
    ours = _native.resize_normalize(image, out_h, out_w, *PLAIN)
    theirs = cv2.resize(image, (out_w, out_h), interpolation=cv2.INTER_LINEAR)
    assert np.abs(ours - planes(theirs)).max() <= 1


@given(seed=seeds, out_h=sizes, out_w=sizes, more_h=st.integers(0, 200), more_w=st.integers(0, 200))
def test_area_shrinking_is_opencvs_within_a_gray_level(seed, out_h, out_w, more_h, more_w) -> None:
    image = noise(seed, out_h + more_h, out_w + more_w)
    ours = _native.resize_normalize(image, out_h, out_w, *PLAIN, area=True)
    theirs = cv2.resize(image, (out_w, out_h), interpolation=cv2.INTER_AREA)
    assert np.abs(ours - planes(theirs)).max() <= 1


def test_normalising_is_pixel_times_scale_minus_mean_over_std() -> None:
    image = noise(3, 20, 30)
    ours = _native.resize_normalize(image, 20, 30, MEAN, STD)
    expected = (planes(image) / 255 - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-6)


@given(seed=seeds, height=sizes, width=sizes, content_w=st.integers(1, 64), area=st.booleans())
def test_one_item_of_a_batch_is_filled_padded_with_zeros_and_nothing_else_is_touched(
    seed, height, width, content_w, area
) -> None:
    image = noise(seed, height, width)
    batch = np.full((3, 3, 48, 64), 7, np.float32)
    _native.resize_normalize_into(batch, 1, image, content_w, MEAN, STD, area=area)
    alone = _native.resize_normalize(image, 48, content_w, MEAN, STD, area=area)
    assert batch[1, :, :, :content_w].tobytes() == alone.tobytes()
    assert not batch[1, :, :, content_w:].any()
    assert (batch[[0, 2]] == 7).all()


@given(seed=seeds, quad=quads(), out_h=st.integers(1, 50), out_w=st.integers(1, 90), channels=st.sampled_from([1, 3]))
def test_a_cropped_quad_is_opencvs_within_two_gray_levels_also_beyond_the_page(
    seed, quad, out_h, out_w, channels
) -> None:
    # Page-like contrast: OpenCV may place a sample 1/64 pixel elsewhere, which on raw noise alone is 4 levels.
    image = cv2.GaussianBlur(noise(seed, 80, 100, channels), (0, 0), 1.0)
    ours = _native.crop_quad(image, quad, out_h, out_w)
    theirs = cv2.warpPerspective(
        image,
        upright(quad.tolist(), out_h, out_w),
        (out_w, out_h),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    assert ours.shape == theirs.shape
    assert np.abs(ours.astype(int) - theirs).max() <= 2


@settings(max_examples=60)
@given(seed=seeds, x=st.integers(2, 20), y=st.integers(2, 20), width=st.integers(10, 80), height=st.integers(24, 96))
def test_the_fused_crop_is_a_crop_then_a_resize(seed, x, y, width, height) -> None:
    image = cv2.GaussianBlur(noise(seed, 130, 120), (0, 0), 1.5)
    quad = np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height]], np.float32)
    content_w = max(1, round(width * 48 / height))
    assume(width <= 2 * content_w)  # beyond, by the rounding of the width, the crop averages and a resize does not
    batch = np.full((2, 3, 48, 320), 7, np.float32)
    _native.crop_normalize_into(batch, 1, image, quad, content_w, *PLAIN)
    cut = image[y : y + height, x : x + width]
    theirs = planes(cv2.resize(cut, (content_w, 48), interpolation=cv2.INTER_LINEAR))
    # The outermost samples lie up to half a pixel beyond the quad: we take the page there, a cut repeats its edge.
    inner = np.s_[:, 2:-2, 2 : content_w - 2]
    assert np.abs(batch[1, :, :, :content_w][inner] - theirs[inner]).max(initial=0) <= 1
    assert not batch[1, :, :, content_w:].any()
    assert (batch[0] == 7).all()


def test_a_crop_that_shrinks_a_lot_averages_instead_of_skipping() -> None:
    # Stripes of one pixel: every second column sampled alone would be all black or all white.
    page = np.zeros((480, 960), np.uint8)
    page[:, ::2] = 255
    quad = np.array([[0, 0], [960, 0], [960, 480], [0, 480]], np.float32)
    batch = np.zeros((1, 3, 48, 96), np.float32)
    _native.crop_normalize_into(batch, 0, page, quad, 96, *PLAIN)
    assert np.abs(batch - 127.5).max() < 20
    assert np.abs(batch.mean() - 127.5) < 1


def test_turning_the_quads_corners_turns_the_text() -> None:
    page = noise(5, 60, 90)
    quad = np.array([[10, 10], [70, 10], [70, 40], [10, 40]], np.float32)
    upside_down = _native.crop_quad(page, np.roll(quad, -2, axis=0), 30, 60)
    np.testing.assert_array_equal(upside_down[:29, :59], page[10:41, 10:71][::-1, ::-1][:29, :59])


def test_a_window_of_a_page_is_read_in_place_read_only_or_not() -> None:
    page = noise(9, 50, 70)
    window = page[5:45, 8:60]
    window.setflags(write=False)
    ours = _native.resize_normalize(window, 20, 20, MEAN, STD)
    assert ours.tobytes() == _native.resize_normalize(window.copy(), 20, 20, MEAN, STD).tobytes()


GOOD = np.zeros((10, 10, 3), np.uint8)
QUAD = np.array([[1, 1], [8, 1], [8, 8], [1, 8]], np.float32)


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (np.zeros((10, 10, 3), np.float32), "image must be uint8"),
        (np.zeros((10, 10, 4), np.uint8), "1 or 3 channels"),
        (np.zeros((0, 10, 3), np.uint8), "empty"),
        (GOOD[:, :, ::-1], "contiguous"),
        (GOOD[:, ::2], "contiguous"),
        (np.zeros(10, np.uint8), "image must be uint8"),
    ],
)
def test_an_image_of_another_kind_is_refused(image: np.ndarray, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _native.resize_normalize(image, 5, 5, MEAN, STD)


@pytest.mark.parametrize(
    ("quad", "says"),
    [
        (QUAD[::-1].copy(), "clockwise"),
        (QUAD[[0, 2, 1, 3]], "convex"),
        (np.zeros((4, 2), np.float32), "convex"),
        (np.full((4, 2), np.nan, np.float32), "finite"),
        (QUAD.astype(np.float64), "float32"),
        (QUAD[:3], r"\(4, 2\)"),
    ],
)
def test_a_quad_that_is_no_text_line_is_refused(quad: np.ndarray, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _native.crop_quad(GOOD, quad, 5, 5)
    with pytest.raises(ValueError, match=says):
        _native.crop_normalize_into(np.zeros((1, 3, 8, 8), np.float32), 0, GOOD, quad, 5, MEAN, STD)


@pytest.mark.parametrize(
    ("batch", "n", "content_w", "says"),
    [
        (np.zeros((1, 3, 8, 8), np.float64), 0, 5, "batch must be float32"),
        (np.zeros((1, 4, 8, 8), np.float32), 0, 5, "batch must be float32"),
        (np.zeros((1, 3, 8, 8), np.float32), 1, 5, "0 <= n < N"),
        (np.zeros((1, 3, 8, 8), np.float32), -1, 5, "0 <= n < N"),
        (np.zeros((1, 3, 8, 8), np.float32), 0, 9, "content_w"),
        (np.zeros((1, 3, 8, 8), np.float32), 0, 0, "content_w"),
        (np.zeros((1, 3, 8, 16), np.float32)[..., ::2], 0, 5, "contiguous"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(batch: np.ndarray, n: int, content_w: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _native.crop_normalize_into(batch, n, GOOD, QUAD, content_w, MEAN, STD)
    with pytest.raises(ValueError, match=says):
        _native.resize_normalize_into(batch, n, GOOD, content_w, MEAN, STD)


def test_a_zero_std_and_a_size_without_pixels_are_refused() -> None:
    with pytest.raises(ValueError, match="std"):
        _native.resize_normalize(GOOD, 5, 5, MEAN, (0.2, 0, 0.2))
    with pytest.raises(ValueError, match="out_h"):
        _native.resize_normalize(GOOD, 0, 5, MEAN, STD)
