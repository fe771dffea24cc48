"""Alignment: warp a face so that its five landmarks are where face recognition networks expect them."""

# Shapes: N faces, 5 landmarks (eyes, nose, corners of the mouth), 2 coordinates, 23 a 2x3 matrix, H height, W width,
# C channels.

from typing import Final

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gif_core.images.faces import IMAGE_SIZE

TEMPLATE: Final = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
)
"""Target positions (x, y) in a 112×112 image, as in insightface."""

SMALLEST_SPREAD: Final = 1e-6
"""Pixels. Landmarks closer together than this count as one point: their directions are rounding errors."""


def align(image_HWC: NDArray[np.uint8], points_52: ArrayLike) -> NDArray[np.uint8]:
    """The aligned face, 112×112 pixels, by bilinear interpolation; black outside the image."""
    if image_HWC.ndim != 3 or image_HWC.size == 0:
        raise ValueError(f"an image has height, width and channels, not the shape {image_HWC.shape}")
    transform_23 = estimate_similarity(points_52)
    size = (IMAGE_SIZE, IMAGE_SIZE)
    warped = cv2.warpAffine(
        image_HWC, transform_23, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=0
    )
    return np.asarray(warped, np.uint8).reshape(*size, -1)


def estimate_similarity(points_52: ArrayLike, target_52: ArrayLike = TEMPLATE) -> NDArray[np.float64]:
    """The 2×3 matrix of the rotation, scale and shift that map `points` closest to `target` (least squares).

    Umeyama's estimate for the plane. With points as complex numbers x + iy a similarity is z → a z + b, so `a` is a
    single division, and the result is never a reflection.
    """
    points_5, target_5 = _as_complex(points_52), _as_complex(target_52)
    centred_5 = points_5 - points_5.mean()
    spread = np.sqrt(np.mean(np.abs(centred_5) ** 2))
    if spread < SMALLEST_SPREAD:
        raise ValueError(f"the landmarks are all at {np.asarray(points_52)[0].tolist()}: they say nothing of the face")
    turn = np.vdot(centred_5, target_5) / np.vdot(centred_5, centred_5).real
    shift = target_5.mean() - turn * points_5.mean()
    if turn == 0 or not np.isfinite([turn, shift]).all():
        raise ValueError(f"no similarity brings the landmarks {np.asarray(points_52).tolist()} to a face")
    return np.array([[turn.real, -turn.imag, shift.real], [turn.imag, turn.real, shift.imag]])


def are_usable(points_N52: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the landmarks of each face determine a similarity: more than one point, and finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        centred_N52 = points_N52 - points_N52.mean(axis=1, keepdims=True)
        spread_N = np.sqrt(np.square(centred_N52).sum(axis=2).mean(axis=1))
    usable_N: NDArray[np.bool_] = (spread_N >= SMALLEST_SPREAD) & np.isfinite(spread_N)
    return usable_N


def _as_complex(points_52: ArrayLike) -> NDArray[np.complex128]:
    """Points as complex numbers, after checking that they are five finite points."""
    points = np.asarray(points_52, np.float64)
    if points.shape != TEMPLATE.shape:
        raise ValueError(f"a face has 5 landmarks of 2 coordinates, not the shape {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError(f"landmarks must be finite numbers, not {points.tolist()}")
    return np.asarray(points[:, 0] + 1j * points[:, 1], np.complex128)
