"""Aligned faces of photographs, and what is doubtful about them."""

# Shapes: H height, W width, C channels.

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.detection.detector import Detection, open_detector
from gif_core.detection.model_file import DetectorFileError, DetectorMissingError
from gif_core.images import IMAGE_SIZE, align
from schemas.errors import GifError

FaceMode = Literal["auto", "aligned", "detect"]
"""`aligned`: the image is an aligned face. `detect`: faces are found in it. `auto`: images of 112×112 pixels are
aligned faces, faces are found in all others."""
FACE_MODES: Final[tuple[FaceMode, ...]] = get_args(FaceMode)
LEAST_EYE_DISTANCE: Final = 16.0
"""Pixels. The eyes of an aligned face are 35 pixels apart: below half of that most of it is interpolated."""
FULL_EYE_DISTANCE: Final = 35.0
LEAST_SHARPNESS: Final = 20.0
"""Variance of the Laplacian of an aligned face: photographs of 250×250 pixels have 50 to 640, and 5 to 22 after a
Gaussian blur of 3 pixels."""

LEAST_FACE_HEIGHT: Final = 66.0
"""Pixels of the face's box in an aligned face of 112×112: 84 to 125 in aligned photographs, 49 to 74 in photographs
of 250×250 pixels that were scaled down as a whole."""
BYSTANDER: Final = 0.5
"""A face whose box is lower than this share of the largest one's does not count as a second person."""


class SeveralFacesError(GifError, ValueError):
    """A photograph that should show one person shows several."""


class NoFaceError(GifError, ValueError):
    """No face was found in a photograph."""


@dataclass(frozen=True)
class AlignedFace:
    """A face as the network takes it, and where it was found."""

    pixels_HWC: NDArray[np.uint8]
    """RGB, 112×112."""
    detection: Detection | None = None
    """None if the image was an aligned face already."""
    others: int = 0
    """Other faces in the photograph."""

    @cached_property
    def sharpness(self) -> float:
        """Variance of the Laplacian: low for blurred and for enlarged faces."""
        grey = cv2.cvtColor(self.pixels_HWC, cv2.COLOR_RGB2GRAY)
        edges = cv2.Laplacian(grey, cv2.CV_16S)
        mean = cv2.sumElems(edges)[0] / edges.size
        return max(0.0, cv2.norm(edges, cv2.NORM_L2SQR) / edges.size - mean**2)  # NumPy's var is 25 times as slow

    @property
    def quality(self) -> float:
        """Between 0 and 1: how much the face should count in a template, by its score, size and sharpness."""
        sharp = self.sharpness / (self.sharpness + LEAST_SHARPNESS)
        if self.detection is None:
            return sharp
        return sharp * self.detection.score * min(1.0, self.detection.eye_distance / FULL_EYE_DISTANCE)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is doubtful about the face: other faces beside it, few pixels, blur."""
        said = []
        if self.others:
            said.append(f"one of {self.others + 1} faces")
        if self.detection and self.detection.eye_distance < LEAST_EYE_DISTANCE:
            said.append(f"tiny: {self.detection.eye_distance:.0f} pixels between the eyes")
        if self.sharpness < LEAST_SHARPNESS:
            said.append(f"blurred: sharpness {self.sharpness:.0f}, usual is 50 and more")
        return tuple(said)


def only_face(faces: Sequence[AlignedFace]) -> AlignedFace:
    """The face of the only person of a photograph, largest first; SeveralFacesError if there is another person.

    Faces less than half as high as the largest belong to bystanders.
    """
    heights = [face.detection.box[3] for face in faces if face.detection]
    persons = sum(height >= BYSTANDER * max(heights) for height in heights)
    if persons > 1:
        raise SeveralFacesError(f"several faces: {persons} of similar size")
    return faces[0]


def find_faces(image_HWC: NDArray[np.uint8], mode: FaceMode = "auto") -> list[AlignedFace]:
    """All faces of an RGB image, largest first; NoFaceError if there is none."""
    if mode not in FACE_MODES:
        raise GifError(f"unknown way to find faces {mode!r}; known: {', '.join(FACE_MODES)}")
    height, width = image_HWC.shape[:2]
    if mode == "aligned" or (mode == "auto" and (height, width) == (IMAGE_SIZE, IMAGE_SIZE)):
        return [AlignedFace(_resize(image_HWC))]
    found = open_detector().find(image_HWC)
    if not found:
        raise NoFaceError(f"no face was found in this image of {width}×{height} pixels")
    return [AlignedFace(align(image_HWC, each.points_52), each, len(found) - 1) for each in found]


def doubt_alignment(pixels_HWC: NDArray[np.uint8]) -> str:
    """What speaks against an image of 112×112 pixels being an aligned face; empty if nothing does.

    The detector judges: nothing is said without it, or if its file is damaged.
    """
    try:
        found = open_detector().find(pixels_HWC)
    except (DetectorMissingError, DetectorFileError):
        return ""
    if not found:
        return "does not look like an aligned face: no face is found in it"
    height = found[0].box[3]
    if height < LEAST_FACE_HEIGHT:
        return f"does not look like an aligned face: its face is {height:.0f} pixels high, usual is 84 to 125"
    return ""


def _resize(image_HWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    size = (IMAGE_SIZE, IMAGE_SIZE)
    if image_HWC.shape[:2] == size:
        return image_HWC
    return np.asarray(cv2.resize(image_HWC, size, interpolation=cv2.INTER_AREA), np.uint8)
