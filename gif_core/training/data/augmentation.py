"""What training does to its images beyond mirroring: low resolution, blur, HSV, grey, crop."""

# Shapes: B images in a batch, H height, W width, C channels, V levels of a channel.

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import cv2
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # the processes that decode start in half the time without the settings
    from schemas.training import AugmentationConfig

SCALES: Final = (0.2, 0.8)
"""Smallest and largest side of a low-resolution image, as a share of the side it had."""
SIGMAS: Final = (0.5, 1.5)
"""Of the Gaussian blur, in pixels."""
BLUR_WINDOW: Final = (5, 5)
HUES: Final = (-14.0, 14.0)
"""Turn of the hue, of 256 for the whole circle: about 20 degrees to either side."""
FACTORS: Final = (0.8, 1.2)
"""On saturation and on value."""
AREAS: Final = (0.2, 1.0)
"""Share of the image that a crop leaves."""
ASPECTS: Final = (-np.log(4 / 3), np.log(4 / 3))
"""Logarithm of a crop's width by its height."""
LEVELS: Final = np.arange(256)


@dataclass(frozen=True, slots=True)
class Augmentation:
    """What happens to each image of a batch; 0 and False stand for nothing."""

    scales_B: NDArray[np.float64]
    sigmas_B: NDArray[np.float64]
    hsv_B: NDArray[np.bool_]
    shifts_B3: NDArray[np.float64]
    """Turn of the hue, factor on the saturation, factor on the value: of no effect where `hsv_B` is False."""
    grey_B: NDArray[np.bool_]
    crops_B4: NDArray[np.float64]
    """Top, left, height and width of what stays, as shares of the image; a height of 0 crops nothing."""

    def part(self, rows: slice) -> "Augmentation":
        """The same for some of the images."""
        return Augmentation(
            self.scales_B[rows],
            self.sigmas_B[rows],
            self.hsv_B[rows],
            self.shifts_B3[rows],
            self.grey_B[rows],
            self.crops_B4[rows],
        )


def draw_augmentation(config: "AugmentationConfig", size: int, seed: list[int]) -> Augmentation | None:
    """Decide for `size` images at once. Every setting has numbers of its own: one does not alter another's."""
    probabilities_41 = np.array([[config.low_resolution], [config.blur], [config.hsv], [config.grey]])
    if not probabilities_41.any() and not config.crop:
        return None
    rng = np.random.default_rng(seed)
    low_resolution_B, blur_B, hsv_B, grey_B = rng.random((4, size)) < probabilities_41
    lowest_5, highest_5 = np.array([SCALES, SIGMAS, HUES, FACTORS, FACTORS]).T
    amounts_B5 = rng.uniform(lowest_5, highest_5, (size, 5))
    scales_B = np.where(low_resolution_B, amounts_B5[:, 0], 0)
    sigmas_B = np.where(blur_B, amounts_B5[:, 1], 0)
    return Augmentation(scales_B, sigmas_B, hsv_B, amounts_B5[:, 2:], grey_B, draw_crops(config.crop, size, rng))


def draw_crops(probability: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Rectangles of a random area, aspect and place, inside the image."""
    area_B, aspect_B = rng.uniform(*AREAS, size), np.exp(rng.uniform(*ASPECTS, size))
    sides_B2 = np.minimum(np.sqrt(area_B[:, None] * np.stack([1 / aspect_B, aspect_B], axis=1)), 1)
    corners_B2 = rng.random((size, 2)) * (1 - sides_B2)
    crops_B4 = np.concatenate([corners_B2, sides_B2], axis=1)
    return np.where(rng.random((size, 1)) < probability, crops_B4, 0)


def augment(images_BHWC: NDArray[np.uint8], augmentation: Augmentation | None) -> None:
    """Change RGB images in place, each as it was decided."""
    if augmentation is None:
        return
    for row in np.flatnonzero(augmentation.crops_B4[:, 2]):
        crop(images_BHWC[row], augmentation.crops_B4[row])
    for row in np.flatnonzero(augmentation.scales_B):
        lower_resolution(images_BHWC[row], augmentation.scales_B[row])
    for row in np.flatnonzero(augmentation.sigmas_B):
        cv2.GaussianBlur(images_BHWC[row], BLUR_WINDOW, augmentation.sigmas_B[row], dst=images_BHWC[row])
    shifted = np.flatnonzero(augmentation.hsv_B)
    for row, table in zip(shifted, hsv_tables(augmentation.shifts_B3[shifted]), strict=True):
        shift_hsv(images_BHWC[row], table)
    for row in np.flatnonzero(augmentation.grey_B):
        turn_grey(images_BHWC[row])


def crop(image_HWC: NDArray[np.uint8], crop_4: NDArray[np.float64]) -> None:
    """Blacken everything outside of the rectangle, in place."""
    height, width = image_HWC.shape[:2]
    top, left, bottom, right = np.rint([*crop_4[:2], *(crop_4[:2] + crop_4[2:])] * np.array([height, width] * 2))
    kept_HWC = image_HWC[int(top) : int(bottom), int(left) : int(right)].copy()
    image_HWC[:] = 0
    image_HWC[int(top) : int(bottom), int(left) : int(right)] = kept_HWC


def lower_resolution(image_HWC: NDArray[np.uint8], scale: float) -> None:
    """Shrink the image and enlarge it again, in place."""
    height, width = image_HWC.shape[:2]
    small = (max(round(width * scale), 1), max(round(height * scale), 1))
    shrunk = cv2.resize(image_HWC, small, interpolation=cv2.INTER_AREA)
    cv2.resize(shrunk, (width, height), dst=image_HWC, interpolation=cv2.INTER_LINEAR)


def hsv_tables(shifts_B3: NDArray[np.float64]) -> NDArray[np.uint8]:
    """What becomes of every level of hue, saturation and value: [B, 256, 3]."""
    hues_B1, factors_B12 = shifts_B3[:, :1], shifts_B3[:, None, 1:]
    hues_BV = (LEVELS + hues_B1) % 256
    levels_BV2 = (LEVELS[:, None] * factors_B12).clip(0, 255)
    return np.concatenate([hues_BV[..., None], levels_BV2], axis=2).astype(np.uint8)


def shift_hsv(image_HWC: NDArray[np.uint8], table_V3: NDArray[np.uint8]) -> None:
    """Replace hue, saturation and value by those of a table, in place."""
    hsv_HWC = cv2.cvtColor(image_HWC, cv2.COLOR_RGB2HSV_FULL)
    cv2.cvtColor(cv2.LUT(hsv_HWC, table_V3[None]), cv2.COLOR_HSV2RGB_FULL, dst=image_HWC)


def turn_grey(image_HWC: NDArray[np.uint8]) -> None:
    """Leave the luminance alone, in place."""
    cv2.cvtColor(cv2.cvtColor(image_HWC, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB, dst=image_HWC)
