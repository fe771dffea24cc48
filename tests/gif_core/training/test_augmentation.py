from dataclasses import replace

import cv2
import numpy as np
import pytest
from pydantic import ValidationError

from gif_core.synthetic import draw_face
from gif_core.training.data.augmentation import FACTORS, HUES, SCALES, SIGMAS, Augmentation, augment, draw_augmentation
from schemas.training import AugmentationConfig, TrainingConfig

SETTINGS = ("low_resolution", "blur", "hsv", "grey")


@pytest.fixture(scope="module")
def originals() -> np.ndarray:
    images = np.stack([draw_face(0, person, 0) for person in range(6)])
    images.setflags(write=False)
    return images


def draw(size: int, **probabilities: float) -> Augmentation:
    drawn = draw_augmentation(AugmentationConfig(**probabilities), size, [0])
    assert drawn is not None
    return drawn


def apply(originals: np.ndarray, augmentation: Augmentation | None) -> np.ndarray:
    images = originals.copy()
    augment(images, augmentation)
    return images


def sharpness(images: np.ndarray) -> np.ndarray:
    return np.array([cv2.Laplacian(image, cv2.CV_32F).var() for image in images])


def to_hsv(images: np.ndarray) -> np.ndarray:
    return np.stack([cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL) for image in images]).astype(float)


def test_nothing_is_changed_unless_it_is_asked_for(originals: np.ndarray) -> None:
    assert TrainingConfig().augmentation == AugmentationConfig()
    assert draw_augmentation(AugmentationConfig(), 6, [0]) is None
    assert np.array_equal(apply(originals, None), originals)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_certain_disturbance_changes_every_image(originals: np.ndarray, setting: str) -> None:
    images = apply(originals, draw(6, **{setting: 1.0}))
    assert images.shape == originals.shape
    assert all((image != original).any() for image, original in zip(images, originals, strict=True))


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_setting_is_the_share_of_images_that_are_changed(setting: str) -> None:
    drawn = draw(10_000, **{setting: 0.3})
    shares = [np.mean(chosen != 0) for chosen in (drawn.scales_B, drawn.sigmas_B, drawn.hsv_B, drawn.grey_B)]
    assert shares == pytest.approx([0.3 if name == setting else 0 for name in SETTINGS], abs=0.02)


def test_grey_images_have_three_equal_channels(originals: np.ndarray) -> None:
    images = apply(originals, draw(6, grey=1.0))
    assert np.array_equal(images[..., 0], images[..., 1])
    assert np.array_equal(images[..., 1], images[..., 2])


@pytest.mark.parametrize("setting", ["blur", "low_resolution"])
def test_blur_and_low_resolution_take_detail_but_not_brightness(originals: np.ndarray, setting: str) -> None:
    images = apply(originals, draw(6, **{setting: 1.0}))
    assert (sharpness(images) < 0.8 * sharpness(originals)).all()
    assert images.mean((1, 2, 3)) == pytest.approx(originals.mean((1, 2, 3)), rel=0.03)


def test_a_lower_resolution_takes_more_detail(originals: np.ndarray) -> None:
    drawn = draw(6, low_resolution=1.0)
    fine = apply(originals, replace(drawn, scales_B=np.full(6, SCALES[1])))
    coarse = apply(originals, replace(drawn, scales_B=np.full(6, SCALES[0])))
    assert (sharpness(coarse) < sharpness(fine)).all()


def test_hsv_changes_hue_saturation_and_value_as_drawn() -> None:
    colours = np.full((1, 112, 112, 3), (180, 120, 90), np.uint8)
    drawn = replace(draw(1, hsv=1.0), shifts_B3=np.array([[10.0, 1.2, 0.9]]))
    before, after = to_hsv(colours)[0, 0, 0], to_hsv(apply(colours, drawn))[0, 0, 0]
    assert after[0] == pytest.approx(before[0] + 10, abs=2)
    assert after[1] == pytest.approx(before[1] * 1.2, rel=0.03)
    assert after[2] == pytest.approx(before[2] * 0.9, rel=0.03)


def test_a_hue_below_zero_comes_round_from_the_other_end() -> None:
    colours = np.full((1, 112, 112, 3), (200, 80, 80), np.uint8)
    drawn = replace(draw(1, hsv=1.0), shifts_B3=np.array([[-10.0, 1.0, 1.0]]))
    assert to_hsv(apply(colours, drawn))[0, 0, 0, 0] == pytest.approx(246, abs=2)


def test_grey_images_stay_grey_when_their_colours_are_shifted() -> None:
    shades = np.repeat(np.random.default_rng(0).integers(0, 256, (4, 112, 112, 1), np.uint8), 3, axis=3)
    images = apply(shades, draw(4, hsv=1.0))
    assert np.array_equal(images[..., 0], images[..., 1])
    assert np.array_equal(images[..., 1], images[..., 2])


def test_amounts_fill_their_ranges() -> None:
    drawn = draw(10_000, low_resolution=1.0, blur=1.0, hsv=1.0)
    amounts = [drawn.scales_B, drawn.sigmas_B, *drawn.shifts_B3.T]
    for amount, (low, high) in zip(amounts, [SCALES, SIGMAS, HUES, FACTORS, FACTORS], strict=True):
        assert low <= amount.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < amount.max() <= high


def test_one_setting_does_not_alter_what_another_draws() -> None:
    alone, together = draw(500, blur=0.5), draw(500, blur=0.5, grey=0.9, low_resolution=0.2)
    assert np.array_equal(alone.sigmas_B, together.sigmas_B)


def test_a_part_of_the_images_fares_as_it_does_among_all(originals: np.ndarray) -> None:
    drawn = draw(6, low_resolution=0.5, blur=0.5, hsv=0.5, grey=0.5)
    some = slice(2, 5)
    assert np.array_equal(apply(originals[some], drawn.part(some)), apply(originals, drawn)[some])


@pytest.mark.parametrize("probability", [-0.1, 1.1])
def test_what_is_no_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValidationError, match="blur"):
        AugmentationConfig(blur=probability)


def test_a_crop_leaves_a_rectangle_of_a_fifth_to_all_of_the_image_where_it_was() -> None:
    drawn = draw(2000, crop=0.25)
    sides = drawn.crops_B4[drawn.crops_B4[:, 2] > 0]
    assert len(sides) / 2000 == pytest.approx(0.25, abs=0.03)
    assert (sides[:, :2] + sides[:, 2:]).max() <= 1
    areas = sides[:, 2] * sides[:, 3]
    assert 0.19 < areas.min() < 0.3
    assert 0.8 < areas.max() <= 1
    images = np.full((2000, 20, 20, 3), 200, np.uint8)
    augment(images, drawn)
    for image, (top, left, height, width) in zip(images, drawn.crops_B4, strict=True):
        kept = image[..., 0] == 200
        rows, columns = kept.any(axis=1), kept.any(axis=0)
        assert kept.sum() == rows.sum() * columns.sum(), "a rectangle"
        if height:
            assert rows.argmax() == round(20 * top)
            assert columns.sum() == round(20 * (left + width)) - round(20 * left)
        else:
            assert kept.all()
