"""Images as callers have them: paths, the bytes of image files, or arrays."""

# Shapes: B images, H height, W width, C channels, 5 landmarks of 2 coordinates.

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gif_core.images import IMAGE_SIZE, align, load_each, read_face, read_face_file, read_landmarks
from schemas.errors import GifError

Image = str | os.PathLike[str] | bytes | NDArray[np.uint8]
"""A path, the content of an image file, or RGB pixels [112, 112, 3]; of any size if landmarks come with it."""
Points = NDArray[np.floating[Any]]
"""Left eye, right eye, nose, left and right corner of the mouth [5, 2], in pixels of the image."""


class NotAnImageError(GifError, ValueError):
    """An image that cannot be read or has the wrong shape; the message says which one and why."""


@dataclass(frozen=True, slots=True)
class GivenImages:
    """Images of any kind, each read when its batch is embedded."""

    images: Sequence[Image]
    points: Sequence[Points | None]

    def __len__(self) -> int:
        """Number of images."""
        return len(self.images)

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """RGB faces [B, 112, 112, 3], in the order asked for."""
        return load_each(indices, lambda index: _read(index, self.images[index], self.points[index]))


def gather_images(
    images: Image | Sequence[Image] | NDArray[np.uint8], landmarks: Points | Sequence[Points] | None = None
) -> GivenImages:
    """One image or several as a list, with landmarks for each of them or for none."""
    given: list[Image] = [images] if _is_one(images) else list(images)  # type: ignore[list-item, arg-type]
    if not given:
        raise NotAnImageError("there are no images: give at least one")
    if landmarks is None:
        return GivenImages(given, [None] * len(given))
    points = np.asarray(landmarks, np.float64)
    if points.size != len(given) * 10:
        raise NotAnImageError(f"{len(given)} images need landmarks of shape [{len(given)}, 5, 2], not {points.shape}")
    return GivenImages(given, list(points.reshape(-1, 5, 2)))


def read_points(file: Path, images: Sequence[Path]) -> list[Points]:
    """The five points of each image from a file of `image.jpg x1 y1 … x5 y5` lines.

    The file may name an image by the end of its path.
    """
    landmarks = read_landmarks(str(file))
    found: list[Points] = []
    for path in images:
        names = ("/".join(path.parts[first:]) for first in range(len(path.parts)))
        name = next((name for name in names if name in landmarks.points), None)
        if name is None:
            raise GifError(f"{path} is not in {file.name}: it needs a line `{path.name} x1 y1 … x5 y5`")
        found.append(landmarks.points[name])
    return found


def _is_one(images: Any) -> bool:
    return isinstance(images, str | os.PathLike | bytes) or (isinstance(images, np.ndarray) and images.ndim == 3)


def _read(index: int, image: Image, points_52: Points | None) -> NDArray[np.uint8]:
    points = None if points_52 is None else points_52.astype(np.float64)
    if isinstance(image, np.ndarray):
        return _check_array(index, image, points)
    try:
        return read_face(image, points) if isinstance(image, bytes) else read_face_file(Path(image), points)
    except OSError as error:
        raise NotAnImageError(f"{error.filename or f'image {index}'}: {error.strerror or error}") from error
    except ValueError as error:
        raise NotAnImageError(f"image {index}: {error}" if isinstance(image, bytes) else str(error)) from error


def _check_array(index: int, image_HWC: NDArray[Any], points_52: NDArray[np.float64] | None) -> NDArray[np.uint8]:
    if image_HWC.dtype != np.uint8 or image_HWC.ndim != 3 or image_HWC.shape[2] != 3:
        wanted = "RGB pixels, uint8 of shape [height, width, 3]"
        raise NotAnImageError(f"image {index} is {image_HWC.dtype} of shape {image_HWC.shape}: give {wanted}")
    if points_52 is not None:
        return align(image_HWC, points_52)
    if image_HWC.shape[:2] != (IMAGE_SIZE, IMAGE_SIZE):
        raise NotAnImageError(
            f"image {index} has the shape {image_HWC.shape}: an aligned face is {IMAGE_SIZE}×{IMAGE_SIZE}; others "
            "need landmarks to be aligned by"
        )
    return image_HWC
