"""Photographs with a box, a name and the landmarks of every face."""

# Shapes: H height, W width, C channels.

from collections.abc import Sequence
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.detection.detector import Detection

KNOWN: Final = (40, 180, 60)
UNKNOWN: Final = (230, 140, 20)
INK: Final = (255, 255, 255)
FONT: Final = cv2.FONT_HERSHEY_SIMPLEX
LEAST_SIDE: Final = 480
"""Smaller photographs are enlarged, so that names can be read."""


def draw_faces(
    image_HWC: NDArray[np.uint8], faces: Sequence[Detection], names: Sequence[str], known: Sequence[bool] | None = None
) -> NDArray[np.uint8]:
    """A copy of an RGB image with a box, its name and five points for each face; green for known, orange for others."""
    scale = max(1.0, LEAST_SIDE / max(image_HWC.shape[:2]))
    drawn = cv2.resize(image_HWC, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    colours = [KNOWN if each else UNKNOWN for each in known] if known is not None else [KNOWN] * len(faces)
    for face, name, colour in zip(faces, names, colours, strict=True):
        _draw_face(drawn, face, scale, name, colour)
    return np.asarray(drawn, np.uint8)


def _draw_face(drawn: Any, face: Detection, scale: float, name: str, colour: tuple[int, int, int]) -> None:
    thick = max(2, round(max(drawn.shape[:2]) / 400))
    left, top, width, height = (round(scale * each) for each in face.box)
    cv2.rectangle(drawn, (left, top), (left + width, top + height), colour, thick)
    for x, y in scale * face.points_52:
        cv2.circle(drawn, (round(x), round(y)), thick + 1, colour, -1)
    _draw_name(drawn, (left, top), name, colour, thick)


def _draw_name(drawn: Any, corner: tuple[int, int], name: str, colour: tuple[int, int, int], thick: int) -> None:
    """Write the name above the box, inside the image."""
    text = "".join(letter if letter.isprintable() else "?" for letter in name)
    size = 0.3 * thick
    (width, height), below = cv2.getTextSize(text, FONT, size, thick)
    left = int(np.clip(corner[0], 0, max(0, drawn.shape[1] - width)))
    bottom = max(corner[1] - below, height + below)
    cv2.rectangle(drawn, (left, bottom - height - below), (left + width, bottom + below), colour, -1)
    cv2.putText(drawn, text, (left, bottom), FONT, size, INK, thick, cv2.LINE_AA)


def encode_picture(image_HWC: NDArray[np.uint8], ending: str) -> bytes:
    """The file of an RGB image: `.jpg`, `.jpeg` or `.png`."""
    _, encoded = cv2.imencode(ending, cv2.cvtColor(image_HWC, cv2.COLOR_RGB2BGR))
    content: bytes = encoded.tobytes()
    return content
