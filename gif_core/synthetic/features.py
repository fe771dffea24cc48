"""The features of a face: eyes, brows, nose, mouth and the lines of age."""

# Shapes: P points, 2 coordinates.

import numpy as np

from gif_core.synthetic.attributes import Person
from gif_core.synthetic.canvas import SIDES, Canvas, Points, between, ellipse, on_face, pair
from gif_core.synthetic.colours import HAIR, IRIS, LIPS, Colour, mix, pick, scale
from gif_core.synthetic.head import half_width, skin_colour, span
from gif_core.synthetic.shot import Expression

WHITE: Colour = (244, 242, 238)
BLACK: Colour = (24, 18, 18)
MOUTH: Colour = (70, 22, 24)
STEPS = np.linspace(-1.0, 1.0, 15)
ARCH = 1.0 - STEPS**2
UPPER_LID, LOWER_LID = 0.56, 0.4
TAPER = np.linspace(1.0, 0.35, 15)
NOSE_LIFT = 0.12


def eye_centre(person: Person) -> tuple[float, float]:
    """The middle of the right eye."""
    return span(person.eye_spacing, 0.2, 0.285), span(person.eye_height, -0.13, -0.03)


def _turned(points_P2: Points, person: Person) -> Points:
    """Points around the origin, tilted as the eye is and put in its place."""
    tilt = -span(person.eye_tilt, -0.28, 0.28)
    cos, sin = np.cos(tilt), np.sin(tilt)
    turned: Points = points_P2 @ np.array([[cos, sin], [-sin, cos]])
    return turned + eye_centre(person)


def paint_eyes(canvas: Canvas, person: Person, expression: Expression) -> None:
    """Eyes in soft sockets, with lids that meet as they close."""
    size = span(person.eye_size, 0.085, 0.145)
    xs, arch = size * STEPS, size * expression.eyes_open * ARCH
    opening = between(xs, -UPPER_LID * arch, LOWER_LID * arch)
    socket = _turned(ellipse((0.0, -0.02), (1.25 * size, 0.72 * size)), person)
    canvas.tint(on_face(pair(socket)), scale(skin_colour(person), 0.72), 0.55, softness=0.05)
    canvas.fill(on_face(pair(_turned(opening, person))), WHITE)
    for share, colour in ((0.5, pick(IRIS, person.eye_colour)), (0.24, BLACK)):
        canvas.fill(on_face(_turned(_irises(size, share, expression), person) * SIDES), colour)
    lashes = _turned(opening[: len(STEPS)], person)
    canvas.stroke(on_face(pair(lashes)), BLACK, 0.024)


def _irises(size: float, share: float, expression: Expression) -> Points:
    """A disc in each eye, looking one way and cut by the lids, both as if in the right eye."""
    discs = ellipse((0.0, -0.08 * size), (share * size, share * size)) + SIDES * (
        0.2 * size * expression.gaze,
        0,
    )
    arch = size * expression.eyes_open * (1.0 - (discs[..., 0] / size) ** 2)
    discs[..., 1] = np.clip(discs[..., 1], -UPPER_LID * arch, LOWER_LID * arch)
    return np.asarray(discs)


def paint_brows(canvas: Canvas, person: Person, expression: Expression) -> None:
    """Brows that taper outwards and rise in surprise."""
    x, y = eye_centre(person)
    y -= span(person.brow_height, 0.12, 0.21) + 0.05 * expression.brow_raise
    slope, thick = span(person.brow_angle, -0.3, 0.3), span(person.brow_thickness, 0.012, 0.05)
    middle = y - 0.15 * slope * STEPS - 0.035 * ARCH
    shape = between(x + 0.15 * STEPS, middle - thick * TAPER, middle + thick * TAPER)
    colour = mix(scale(pick(HAIR, person.hair_colour), 0.75), skin_colour(person), 0.12)
    canvas.fill(on_face(pair(shape)), colour)


def nose_y(person: Person) -> float:
    """How low the tip of the nose is."""
    return span(person.nose_length, 0.13, 0.27)


def paint_nose(canvas: Canvas, person: Person) -> None:
    """A bridge in half-shadow, a lit ridge and tip, two nostrils."""
    skin, tip, wide = skin_colour(person), nose_y(person), span(person.nose_width, 0.07, 0.15)
    side = np.array([(0.045, -0.1), (0.05, tip - 0.12), (wide, tip - 0.01), (0.6 * wide, tip + 0.05)])
    sides = np.concatenate([side, side[::-1] * (-1, 1)])
    canvas.tint([on_face(sides, 0.06)], scale(skin, 0.66), 0.4, softness=0.03)
    lit = [ellipse((0.0, tip - 0.16), (0.02, 0.12)), ellipse((0.0, tip - 0.01), (0.5 * wide, 0.035))]
    canvas.tint(on_face(np.stack(lit), NOSE_LIFT), mix(skin, (255, 250, 240), 0.4), 0.65, softness=0.035)
    nostril = ellipse((0.5 * wide, tip + 0.03), (0.24 * wide, 0.016))
    canvas.fill(on_face(pair(nostril), 0.08), scale(skin, 0.38))


def mouth_y(person: Person) -> float:
    """How low the line between the lips is."""
    return nose_y(person) + span(person.mouth_height, 0.17, 0.26)


def lip_thickness(person: Person) -> float:
    """How far each lip reaches from that line."""
    return span(person.lip_thickness, 0.02, 0.068)


def mouth_corner(person: Person, expression: Expression) -> tuple[float, float]:
    """The right end of that line, which a smile moves outwards and up."""
    x = span(person.mouth_width, 0.14, 0.25) * (1 + 0.15 * expression.smile)
    return x, mouth_y(person) - 0.06 * expression.smile


def paint_mouth(canvas: Canvas, person: Person, expression: Expression) -> None:
    """Two lips whose corners a smile lifts, and the teeth that show when they part."""
    xs = mouth_corner(person, expression)[0] * STEPS
    thick, gap = lip_thickness(person), 0.13 * expression.mouth_open * ARCH
    line = mouth_y(person) - 0.06 * expression.smile * STEPS**2
    bow = thick * (ARCH - 0.28 * np.exp(-((STEPS / 0.22) ** 2)))
    lips = mix(pick(LIPS, person.lip_colour), scale(skin_colour(person), 0.75), 0.35)
    if expression.mouth_open > 0.0:
        canvas.fill(on_face(between(xs, line, line + gap)), MOUTH)
        canvas.fill(on_face(between(0.85 * xs, line, line + 0.45 * gap)), WHITE)
    canvas.fill(on_face(between(xs, line - bow, line)), scale(lips, 0.86))
    canvas.fill(on_face(between(xs, line + gap, line + gap + 1.15 * thick * ARCH)), lips)
    canvas.stroke([on_face(np.stack([xs, line], axis=1))], scale(lips, 0.5), 0.014)


def paint_age(canvas: Canvas, person: Person) -> None:
    """Lines on the forehead, under the eyes and beside the mouth, deeper with the years."""
    depth = max(0.0, person.age - 0.35) / 0.65
    if depth == 0.0:
        return
    x, y = eye_centre(person)
    bag, fold = y + 0.1 + 0.03 * ARCH, nose_y(person) + 0.09 + 0.1 * STEPS
    rows = [row - 0.02 * ARCH for row in (-0.42, -0.35)]
    lines = [
        *pair(between(x + 0.1 * STEPS, bag, bag + 0.014)),
        *pair(between(0.2 + 0.06 * STEPS + 0.02 * ARCH, fold, fold + 0.02 * ARCH)),
        *(between(0.5 * half_width(person) * STEPS, row, row + 0.012) for row in rows),
    ]
    canvas.tint(on_face(np.stack(lines)), scale(skin_colour(person), 0.55), 0.7 * depth)
