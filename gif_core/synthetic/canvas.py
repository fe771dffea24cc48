"""A canvas that projects points of a head in three dimensions and paints smooth shapes.

Head coordinates: x to the right, y downwards, z towards the camera; the crop spans [-1, 1] in x and y.
"""

# Shapes: P points, K control points, 2 and 3 coordinates.

from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gif_core.synthetic.colours import Colour

Points = NDArray[np.float64]
Shapes = Points | list[Points]
Image = NDArray[np.uint8]

FRACTION_BITS = 4
FACE_DEPTH = 0.4
FACE_BULGE = 1.3
SIDES = np.array([[[1.0, 1.0]], [[-1.0, 1.0]]])


@dataclass(frozen=True)
class Pose:
    """How the head is held and framed: angles in radians, the rest in head units."""

    yaw: float = 0.0
    pitch: float = 0.0
    roll: float = 0.0
    zoom: float = 1.0
    shift: tuple[float, float] = (0.0, 0.0)


def at_depth(points_P2: ArrayLike, depth: float) -> Points:
    """Points of a flat shape at one depth."""
    points = np.asarray(points_P2, dtype=np.float64)
    raised = np.empty((*points.shape[:-1], 3))
    raised[..., :2], raised[..., 2] = points, depth
    return raised


def on_face(points_P2: ArrayLike, lift: float = 0.0) -> Points:
    """Points laid on the bulging front of the face, so that turning it foreshortens the far side."""
    points = np.asarray(points_P2, dtype=np.float64)
    raised = np.empty((*points.shape[:-1], 3))
    raised[..., :2], raised[..., 2] = points, FACE_DEPTH + lift - FACE_BULGE * points[..., 0] ** 2
    return raised


@cache
def _spline_basis(steps: int) -> Points:
    """Catmull-Rom weights of four neighbouring control points at `steps` places between the middle two."""
    t = np.arange(steps) / steps
    weights = [-(t**3) + 2 * t**2 - t, 3 * t**3 - 5 * t**2 + 2, -3 * t**3 + 4 * t**2 + t, t**3 - t**2]
    return np.stack(weights, axis=1) / 2


@cache
def _neighbours(num_points: int) -> NDArray[np.intp]:
    """For each point of a closed curve, itself between its predecessor and its two successors."""
    return (np.arange(num_points)[:, None] + np.arange(-1, 3)) % num_points


def smooth(control_K2: ArrayLike, steps: int = 6) -> Points:
    """A closed smooth curve through control points."""
    control = np.asarray(control_K2, dtype=np.float64)
    curve: Points = _spline_basis(steps) @ control[_neighbours(len(control))]
    return curve.reshape(-1, 2)


@cache
def _unit_circle(steps: int) -> Points:
    angle = np.linspace(0.0, 2 * np.pi, steps, endpoint=False)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def ellipse(centre: tuple[float, float], radii: tuple[float, float], steps: int = 20) -> Points:
    """Points around an upright ellipse."""
    return _unit_circle(steps) * radii + centre


def pair(right_P2: Points) -> Points:
    """A shape on the right of the face and its mirror image on the left."""
    both: Points = right_P2 * SIDES
    return both


def between(xs: Points, upper: Points, lower: Points) -> Points:
    """The closed shape between two curves over the same places."""
    points = np.empty((2 * len(xs), 2))
    points[:, 0] = np.concatenate([xs, xs[::-1]])
    points[:, 1] = np.concatenate([upper, lower[::-1]])
    return points


class Canvas:
    """An image and the pose under which head coordinates are painted onto it."""

    def __init__(self, image: Image, pose: Pose) -> None:
        """Paint on `image` (square, in place)."""
        self.image = image
        self.half = image.shape[0] / 2
        matrix, offset = _projection(pose)
        unit = self.half * (1 << FRACTION_BITS)
        self._matrix: Points = matrix * unit
        self._offset: Points = (offset + 1.0) * unit - (1 << FRACTION_BITS) / 2

    def project(self, points_P3: Points) -> NDArray[np.int32]:
        """Fixed-point pixel positions of head points."""
        flat: Points = points_P3 @ self._matrix
        return np.rint(flat + self._offset).astype(np.int32)

    def _project_all(self, shapes: Shapes) -> list[NDArray[np.int32]]:
        """Pixel positions of several shapes, in one go where they have as many points each."""
        if isinstance(shapes, np.ndarray):
            return list(self.project(shapes.reshape(-1, *shapes.shape[-2:])))
        return [self.project(shape) for shape in shapes]

    def fill(self, shapes: Shapes, colour: Colour) -> None:
        """Fill one closed shape or several."""
        cv2.fillPoly(self.image, self._project_all(shapes), colour, cv2.LINE_AA, FRACTION_BITS)

    def stroke(self, lines: Shapes, colour: Colour, width: float, closed: bool = False) -> None:
        """Draw lines of a width given in head units."""
        thickness = max(1, round(width * self.half))
        pixels = self._project_all(lines)
        cv2.polylines(self.image, pixels, closed, colour, thickness, cv2.LINE_AA, FRACTION_BITS)

    def tint(self, shapes: Shapes, colour: Colour, alpha: float, softness: float = 0.0) -> None:
        """Lay a translucent colour over shapes whose edges fade over `softness` head units."""
        pixels = self._project_all(shapes)
        box = self._box(pixels, softness)
        if box is None:
            return
        rows, columns = box
        corner = np.array([columns.start, rows.start], dtype=np.int32) << FRACTION_BITS
        mask = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.uint8)
        cv2.fillPoly(mask, [shape - corner for shape in pixels], (255,), cv2.LINE_AA, FRACTION_BITS)
        width = round(softness * self.half)
        if width > 0:
            cv2.blur(cv2.blur(mask, (width, width), mask), (width, width), mask)
        blend(self.image[rows, columns], colour, mask * np.float32(alpha / 255))

    def _box(self, pixels: list[NDArray[np.int32]], softness: float) -> tuple[slice, slice] | None:
        """The part of the image that shapes and their soft edges touch, if any."""
        margin = round(softness * self.half) + 2
        left, top, width, height = (edge >> FRACTION_BITS for edge in cv2.boundingRect(np.concatenate(pixels)))
        side = self.image.shape[0]
        rows = slice(max(top - margin, 0), min(top + height + margin, side))
        columns = slice(max(left - margin, 0), min(left + width + margin, side))
        return (rows, columns) if rows.start < rows.stop and columns.start < columns.stop else None


def blend(image: Image, colour: Colour, weight: NDArray[np.float32]) -> None:
    """Mix a colour into an image in place, by a weight per pixel."""
    paint = np.empty(image.shape, np.uint8)
    cv2.rectangle(paint, (0, 0), (image.shape[1], image.shape[0]), colour, cv2.FILLED)
    image[:] = cv2.blendLinear(image, paint, 1 - weight, weight)


def project_to_crop(points_P3: Points, pose: Pose, side: int) -> Points:
    """Where head points are in an image of `side` pixels, pixel centres at whole numbers."""
    matrix, offset = _projection(pose)
    places: Points = (points_P3 @ matrix + offset + 1.0) * side / 2 - 0.5
    return places


def _projection(pose: Pose) -> tuple[Points, Points]:
    """The 3 x 2 matrix and the offset that take head points to the crop (a turn, then a similarity)."""
    turn = np.array([[np.cos(pose.yaw), 0.0], [0.0, np.cos(pose.pitch)], [np.sin(pose.yaw), np.sin(pose.pitch)]])
    cos, sin = pose.zoom * np.cos(pose.roll), pose.zoom * np.sin(pose.roll)
    return turn @ np.array([[cos, sin], [-sin, cos]]), np.asarray(pose.shift, dtype=np.float64)
