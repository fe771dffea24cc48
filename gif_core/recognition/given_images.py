"""Images as callers have them: paths, the bytes of image files, or arrays."""

# Shapes: B images, H height, W width, C channels, 5 landmarks of 2 coordinates.

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gif_core.detection import AlignedFace, DetectorMissingError, FaceMode, find_faces
from gif_core.images import IMAGE_SIZE, align, decode_bounded, load_each, read_image_file, read_landmarks
from schemas.errors import GifError

logger = logging.getLogger(__name__)

AnyImage = str | os.PathLike[str] | bytes | NDArray[np.uint8] | AlignedFace
"""A path, the content of an image file, RGB pixels [height, width, 3], or a face that was found before."""
Points = NDArray[np.floating[Any]]
"""Left eye, right eye, nose, left and right corner of the mouth [5, 2], in pixels of the image."""


class NotAnImageError(GifError, ValueError):
    """An image that cannot be read or has the wrong shape; the message says which one and why."""


@dataclass(frozen=True, slots=True)
class GivenImages:
    """Images of any kind, each read when its batch is embedded."""

    images: Sequence[AnyImage]
    points: Sequence[Points | None]
    mode: FaceMode = "auto"

    def __len__(self) -> int:
        """Number of images."""
        return len(self.images)

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """RGB faces [B, 112, 112, 3], in the order asked for."""
        return load_each(indices, lambda index: _read(index, self.images[index], self.points[index], self.mode))


def gather_images(
    images: AnyImage | Sequence[AnyImage] | NDArray[np.uint8],
    landmarks: Points | Sequence[Points] | None = None,
    mode: FaceMode = "auto",
) -> GivenImages:
    """One image or several as a list, with landmarks for each of them or for none; `mode` says how faces are found."""
    given: list[AnyImage] = [images] if _is_one(images) else list(images)  # type: ignore[list-item, arg-type]
    if not given:
        raise NotAnImageError("there are no images: give at least one")
    if landmarks is None:
        return GivenImages(given, [None] * len(given), mode)
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
    return isinstance(images, str | os.PathLike | bytes | AlignedFace) or (
        isinstance(images, np.ndarray) and images.ndim == 3
    )


def read_faces(image: AnyImage, mode: FaceMode = "auto", points_52: Points | None = None) -> list[AlignedFace]:
    """The faces of one image, largest first; with landmarks, the one that they show.

    NotAnImageError if the image cannot be read or shows no face.
    """
    return _faces(0, image, points_52, mode)


def _read(index: int, image: AnyImage, points_52: Points | None, mode: FaceMode) -> NDArray[np.uint8]:
    """The aligned face of one image: the largest one if it shows several."""
    face = _faces(index, image, points_52, mode)[0]
    if face.remarks and not isinstance(image, AlignedFace):
        logger.warning("%s: the largest face is used, which is %s", _name(index, image), ", ".join(face.remarks))
    return face.pixels_HWC


def _faces(index: int, image: AnyImage, points_52: Points | None, mode: FaceMode) -> list[AlignedFace]:
    if isinstance(image, AlignedFace):
        return [image]
    try:
        pixels_HWC = _pixels(index, image)
        if points_52 is not None:
            return [AlignedFace(align(pixels_HWC, points_52.astype(np.float64)))]
        return find_faces(pixels_HWC, mode)
    except NotAnImageError:
        raise
    except OSError as error:
        raise NotAnImageError(f"{error.filename or _name(index, image)}: {error.strerror or error}") from error
    except ValueError as error:
        raise NotAnImageError(f"{_name(index, image)}: {error}") from error
    except DetectorMissingError as error:
        raise DetectorMissingError(
            f"{_name(index, image)} is not an aligned face of {IMAGE_SIZE}×{IMAGE_SIZE} pixels, and {error}. If it is "
            "aligned and only its size differs, say so: --faces aligned, in Python faces='aligned'"
        ) from error


def _pixels(index: int, image: str | os.PathLike[str] | bytes | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The RGB pixels of an image in its own size."""
    if isinstance(image, np.ndarray):
        return _check_array(index, image)
    return decode_bounded(image if isinstance(image, bytes) else read_image_file(Path(image)))


def _name(index: int, image: AnyImage) -> str:
    return str(image) if isinstance(image, str | os.PathLike) else f"image {index}"


def _check_array(index: int, image_HWC: NDArray[Any]) -> NDArray[np.uint8]:
    if image_HWC.dtype != np.uint8 or image_HWC.ndim != 3 or image_HWC.shape[2] != 3 or not image_HWC.size:
        wanted = "RGB pixels, uint8 of shape [height, width, 3]"
        raise NotAnImageError(f"image {index} is {image_HWC.dtype} of shape {image_HWC.shape}: give {wanted}")
    return image_HWC
