"""Finding faces with YuNet: a box, five landmarks and a score for each."""

# Shapes: F faces, 15 numbers of a face (box, landmarks, score), 5 landmarks of 2 coordinates, H height, W width,
# C channels.

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.detection.model_file import find_detector, read_detector

SIDES: Final = (320, 640, 1280)
"""Longest sides that a photograph is scaled down to: faces of half the picture are found in the small copies, faces in
a crowd in the large one."""
LEAST_SCORE: Final = 0.7
OVERLAP: Final = 0.3
"""Of two boxes that overlap more than this (intersection over union) the one with the lower score is dropped."""
MOST_FACES: Final = 1000
"""Boxes considered in one copy of a photograph."""


@dataclass(frozen=True, slots=True)
class Detection:
    """A face in an image, in pixels of the image."""

    box: tuple[float, float, float, float]
    """Left, top, width, height."""
    points_52: NDArray[np.float64]
    """The eye on the left of the image, the other eye, nose, corners of the mouth in the same order."""
    score: float

    @property
    def eye_distance(self) -> float:
        """Pixels between the eyes."""
        return float(np.linalg.norm(self.points_52[0] - self.points_52[1]))

    @property
    def area(self) -> float:
        """Pixels of the box."""
        return self.box[2] * self.box[3]


class Detector:
    """Finds faces; safe to use from several threads, each of which has its own network."""

    def __init__(self, content: bytes) -> None:
        """Take the content of the model file."""
        self._content = np.frombuffer(content, np.uint8)
        self._local = threading.local()

    def find(self, image_HWC: NDArray[np.uint8]) -> list[Detection]:
        """The faces of an RGB image, largest first."""
        bgr_HWC = cv2.cvtColor(image_HWC, cv2.COLOR_RGB2BGR)
        rows_F15 = _suppress(np.concatenate([self._find_scaled(bgr_HWC, scale) for scale in _scales(*bgr_HWC.shape)]))
        found = [Detection(tuple(row[:4]), row[4:14].reshape(5, 2), float(row[14])) for row in rows_F15]
        return sorted(found, key=lambda face: -face.area)

    def _find_scaled(self, bgr_HWC: Any, scale: float) -> NDArray[np.float64]:
        if scale < 1:
            bgr_HWC = cv2.resize(bgr_HWC, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        height, width = bgr_HWC.shape[:2]
        self._network.setInputSize((width, height))
        _, rows = self._network.detect(bgr_HWC)
        rows_F15 = np.empty((0, 15)) if rows is None else np.asarray(rows, np.float64)
        rows_F15[:, :14] /= scale
        return rows_F15[np.isfinite(rows_F15).all(axis=1)]

    @property
    def _network(self) -> Any:
        """This thread's network."""
        if not hasattr(self._local, "network"):
            self._local.network = _build(self._content)
        return self._local.network


def _build(content: NDArray[np.uint8]) -> Any:
    """OpenCV 5 warns that it ignores the target, which is the CPU anyway."""
    before = cv2.utils.logging.getLogLevel()
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)
    try:
        nothing = np.empty(0, np.uint8)
        return cv2.FaceDetectorYN.create("onnx", content, nothing, (320, 320), LEAST_SCORE, OVERLAP, MOST_FACES)
    finally:
        cv2.utils.logging.setLogLevel(before)


def _scales(height: int, width: int, _: int) -> Iterator[float]:
    """Scales of the copies in which faces are looked for; a small photograph is taken as it is."""
    longest = max(height, width)
    yield from (side / longest for side in SIDES if side < longest)
    if longest <= SIDES[-1]:
        yield 1.0


def _suppress(rows_F15: NDArray[np.float64]) -> NDArray[np.float64]:
    """Drop faces that were found in several copies of the photograph: the best score of overlapping boxes stays."""
    if len(rows_F15) < 2:
        return rows_F15
    kept = cv2.dnn.NMSBoxes(rows_F15[:, :4].tolist(), rows_F15[:, 14].tolist(), LEAST_SCORE, OVERLAP)
    return rows_F15[np.asarray(kept, np.int64).reshape(-1)]


def open_detector() -> Detector:
    """The installed detector, opened once per process; DetectorMissingError without it."""
    return _open(find_detector())


@lru_cache(maxsize=1)
def _open(path: Path) -> Detector:
    return Detector(read_detector(path))
