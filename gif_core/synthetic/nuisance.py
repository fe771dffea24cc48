"""What a photograph adds to a face: background, occlusion, light, blur and noise."""

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.synthetic.canvas import Canvas, Image, at_depth, ellipse, on_face, pair, smooth
from gif_core.synthetic.colours import Colour, mix, scale
from gif_core.synthetic.head import mirrored
from gif_core.synthetic.shot import Light, Shot

LIGHT_GRID = 28
HEAD_RADII = (0.62, 0.85)


def paint_backdrop(rng: np.random.Generator, shot: Shot, side: int) -> Image:
    """A gradient between two colours with blotches out of focus."""
    coarse = np.array(shot.backdrop, dtype=np.float32)[rng.integers(0, 2, (5, 5))]
    coarse += rng.normal(0.0, 18.0, (5, 5, 1)).astype(np.float32)
    middle = cv2.resize(np.clip(coarse, 0, 255).astype(np.uint8), (28, 28), interpolation=cv2.INTER_CUBIC)
    return np.asarray(cv2.resize(middle, (side, side), interpolation=cv2.INTER_LINEAR), dtype=np.uint8)


def paint_occlusion(canvas: Canvas, shot: Shot) -> None:
    """The occlusion of this photograph, if there is one."""
    painters = {"hand": _paint_hand, "mask": _paint_mask, "sunglasses": _paint_sunglasses, "hat": _paint_hat}
    if shot.occlusion is not None:
        painters[shot.occlusion](canvas, shot.occlusion_colour)


def _paint_hand(canvas: Canvas, colour: Colour) -> None:
    """Four fingers laid on a cheek from below."""
    side = 1.0 if colour[0] > colour[2] else -1.0
    skin = mix((214, 164, 130), (110, 74, 52), colour[1] / 255)
    canvas.fill(at_depth(ellipse((side * 0.45, 1.0), (0.26, 0.3)), 0.5), skin)
    for finger, height in enumerate((0.5, 0.4, 0.42, 0.52)):
        x = side * (0.28 + 0.115 * finger)
        line = at_depth([(x - 0.05 * side, height), (x, 0.9)], 0.5)
        canvas.stroke(line, scale(skin, 1.0 - 0.07 * finger), 0.11)


def _paint_mask(canvas: Canvas, colour: Colour) -> None:
    """A medical mask over nose and mouth."""
    cloth = mix(colour, (220, 228, 235), 0.6)
    shape = smooth(mirrored([(0.12, 0.1), (0.4, 0.2), (0.44, 0.5), (0.2, 0.84)]))
    canvas.fill(on_face(shape), cloth)
    folds = [on_face(smooth([(-0.36, y), (0.0, y + 0.03), (0.36, y)])[:12]) for y in (0.34, 0.48, 0.6)]
    canvas.stroke(folds, scale(cloth, 0.86), 0.014)


def _paint_sunglasses(canvas: Canvas, colour: Colour) -> None:
    """Dark lenses and a bar across."""
    dark = scale(colour, 0.18)
    lens = smooth([(0.06, -0.2), (0.42, -0.19), (0.38, 0.06), (0.12, 0.07)])
    canvas.fill(on_face(pair(lens)), dark)
    canvas.stroke([on_face([(-0.5, -0.17), (0.5, -0.17)], 0.05)], dark, 0.05)


def _paint_hat(canvas: Canvas, colour: Colour) -> None:
    """A cap with a brim over the forehead."""
    crown = smooth(mirrored([(0.3, -1.0), (0.62, -0.75), (0.68, -0.4)]))
    brim = smooth(mirrored([(0.3, -0.46), (0.62, -0.42), (0.45, -0.32)]))
    canvas.fill(at_depth(crown, 0.05), colour)
    canvas.fill(on_face(brim, 0.2), scale(colour, 0.7))


def light_map(light: Light, centre: tuple[float, float]) -> NDArray[np.float32]:
    """How brightly each cell of a coarse grid is lit, the head taken for an ellipsoid (Lambert's law)."""
    ticks = np.linspace(-1.0, 1.0, LIGHT_GRID, dtype=np.float32)
    x = (ticks[None, :] - np.float32(centre[0])) / np.float32(HEAD_RADII[0])
    y = (ticks[:, None] - np.float32(centre[1])) / np.float32(HEAD_RADII[1])
    flat = np.sqrt(np.maximum(x * x + y * y, 1.0))
    z = np.sqrt(np.maximum(1.0 - x * x - y * y, 0.0))
    facing = light.direction[0] * x / flat + light.direction[1] * y / flat + light.direction[2] * z
    lit = light.ambient + light.diffuse * np.maximum(facing, 0.0)
    return np.asarray(lit[:, :, None] * np.array(light.tint), dtype=np.float32)


def apply_light(image: Image, light: Light, centre: tuple[float, float]) -> Image:
    """Light an image from one side, in one colour, and fade its colours."""
    side = image.shape[0]
    lit = cv2.resize(light_map(light, centre), (side, side), interpolation=cv2.INTER_LINEAR)
    bright = cv2.multiply(image, lit, dtype=cv2.CV_8U)
    grey = cv2.cvtColor(cv2.cvtColor(bright, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    faded = cv2.addWeighted(bright, light.saturation, grey, 1.0 - light.saturation, 0.0)
    return np.asarray(faded, dtype=np.uint8)


def degrade(rng: np.random.Generator, image: Image, shot: Shot) -> Image:
    """The lens's blur and the sensor's noise."""
    if shot.blur > 0.0:
        sigma = shot.blur * image.shape[0] / 112
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), dtype=np.uint8)
    grain = (rng.random(image.shape, dtype=np.float32) - np.float32(0.5)) * np.float32(shot.noise * 12**0.5)
    return np.asarray(cv2.add(image, grain, dtype=cv2.CV_8U), dtype=np.uint8)
