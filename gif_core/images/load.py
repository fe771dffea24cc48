"""Loading faces from untrusted image files: the cost of decoding is checked before decoding."""

# Shapes: B images of a batch, 5 landmarks, 2 coordinates, H height, W width, C channels.

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.images.alignment import align
from gif_core.images.bounds import BadImageError, ImageLimits, check_bounds
from gif_core.images.faces import IMAGE_SIZE, decode_whole, fit
from gif_core.images.source_files import LARGEST_IMAGE

LIMITS: Final = ImageLimits(smallest=1, largest=2**13)
"""Photographs of 48 megapixels are within the limits; a decoded image takes at most 150 MB."""


def decode_bounded(content: bytes, limits: ImageLimits = LIMITS) -> NDArray[np.uint8]:
    """Decode an image file from outside to RGB in its own size; BadImageError if it is too costly or damaged."""
    check_bounds(content, limits)
    try:
        return decode_whole(np.frombuffer(content, np.uint8))
    except ValueError as error:
        raise BadImageError(f"cannot be decoded: {error}") from None


def read_face(content: bytes, points_52: NDArray[np.float64] | None = None) -> NDArray[np.uint8]:
    """Decode to RGB, 112×112: aligned by five landmarks, or resized without them; ValueError if that fails."""
    image_HWC = decode_bounded(content)
    return fit(image_HWC) if points_52 is None else align(image_HWC, points_52)


def read_image_file(path: Path) -> bytes:
    """The bytes of a regular file that is not larger than an image can be; BadImageError for anything else."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise BadImageError("not a regular file")
    if status.st_size > LARGEST_IMAGE:
        raise BadImageError(f"too large: a file of {status.st_size} bytes")
    return path.read_bytes()


def read_face_file(path: Path, points_52: NDArray[np.float64] | None = None) -> NDArray[np.uint8]:
    """Like `read_face`, for a file, which errors name."""
    try:
        return read_face(read_image_file(path), points_52)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def load_each(indices: NDArray[np.int64], load_one: Callable[[int], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Load images one by one into a batch, RGB [B, 112, 112, 3], in the order of `indices`."""
    images_BHWC = np.empty((len(indices), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
    for place, index in enumerate(indices.tolist()):
        images_BHWC[place] = load_one(index)
    return images_BHWC
