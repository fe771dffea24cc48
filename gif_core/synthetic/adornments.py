"""Beard, glasses, moles and freckles."""

import numpy as np

from gif_core.synthetic.attributes import Person, word_for
from gif_core.synthetic.canvas import Canvas, Points, at_depth, ellipse, on_face, pair
from gif_core.synthetic.colours import FRAMES, HAIR, mix, pick, scale
from gif_core.synthetic.features import eye_centre, lip_thickness, mouth_y, nose_y
from gif_core.synthetic.head import chin_y, face_outline, half_width, mirrored, skin_colour, span
from gif_core.synthetic.shot import Expression

MAX_FRECKLES = 36
GLASSES_LIFT = 0.08
# The two-dimensional golden ratio: multiples of it spread evenly without a visible pattern.
LATTICE = np.array([0.7548776662, 0.5698402910])


def beard_alpha(person: Person) -> float:
    """How opaque a beard is: nothing, a shadow of stubble, or hair."""
    return float(np.interp(person.beard_density, (0.55, 0.56, 0.75, 0.76, 1.0), (0.0, 0.3, 0.45, 0.85, 1.0)))


def paint_beard(canvas: Canvas, person: Person, expression: Expression) -> None:
    """A moustache, and a beard that its shape takes from the chin up the jaw."""
    alpha = beard_alpha(person)
    if alpha == 0.0:
        return
    colour = mix(scale(pick(HAIR, person.hair_colour), 0.85), skin_colour(person), 0.08)
    shapes = [_moustache(person), _jaw(person, 0.13 * expression.mouth_open)]
    canvas.tint(shapes, colour, alpha, softness=0.035)


def _moustache(person: Person) -> Points:
    """Hair between nose and lips, longer with fuller beards."""
    top = mouth_y(person) - lip_thickness(person)
    end = span(person.beard_shape, 0.17, 0.25)
    upper = [(0.03, top - 0.05), (0.6 * end, top - 0.035), (end, top + 0.06)]
    return on_face(mirrored([*upper, (0.8 * end, top + 0.07), (0.04, top)]))


def _jaw(person: Person, drop: float) -> Points:
    """The face's outline below a height that rises with the beard's shape, cut out around the mouth."""
    low = mouth_y(person) + lip_thickness(person) + drop + 0.02
    reach, height = span(person.beard_shape, 0.15, 0.6), span(person.beard_shape, low, 0.0)
    outline = face_outline(person)
    jaw = outline[(outline[:, 1] > height) & (np.abs(outline[:, 0]) < reach)]
    lower = jaw[np.argsort(-jaw[:, 0])] * (1.0, span(person.beard_shape, 1.0, 1.08))
    corner = span(person.beard_shape, 0.15, 0.3)
    upper = [(-corner, low - 0.06), (-0.1, low), (0.1, low), (corner, low - 0.06)]
    return np.concatenate([at_depth(lower, 0.0), on_face(upper)])


def lens(person: Person) -> Points:
    """The right lens, between a circle and a rectangle (a superellipse)."""
    x, y = eye_centre(person)
    power = 2.0 / span(person.glasses_shape, 2.0, 7.0)
    circle = ellipse((0.0, 0.0), (1.0, 1.0), steps=32)
    radii = (span(person.glasses_size, 0.14, 0.19), span(person.glasses_size, 0.1, 0.175))
    return np.sign(circle) * np.abs(circle) ** power * radii + (1.06 * x, y + 0.02)


def paint_glasses(canvas: Canvas, person: Person) -> None:
    """Frames with a bridge, temples and a faint glare."""
    if word_for("glasses", person.glasses) == "none":
        return
    right, y = lens(person), eye_centre(person)[1]
    lenses, colour = on_face(pair(right), GLASSES_LIFT), pick(FRAMES, person.glasses_colour)
    canvas.tint(lenses, (235, 240, 248), 0.14)
    canvas.stroke(lenses, colour, 0.034, closed=True)
    inner, outer = right[:, 0].min(), right[:, 0].max()
    bridge = on_face([(-inner, y), (0.0, y - 0.02), (inner, y)], GLASSES_LIFT)
    hinges = on_face(pair(np.array([(outer, y)])), GLASSES_LIFT)
    ears = at_depth(pair(np.array([(half_width(person) + 0.02, y)])), 0.0)
    canvas.stroke([bridge, *np.concatenate([hinges, ears], axis=1)], colour, 0.03)


def paint_marks(canvas: Canvas, person: Person) -> None:
    """One mole, and as many freckles as the skin has."""
    skin, width = skin_colour(person), half_width(person)
    spot = (span(person.mole_x, -0.75, 0.75) * width, span(person.mole_y, 0.08, 0.6 * chin_y(person)))
    canvas.fill(on_face(ellipse(spot, (0.026, 0.026), steps=10)), scale(skin, 0.35))
    count = round(MAX_FRECKLES * max(0.0, person.freckles - 0.4) / 0.6)
    if count > 0:
        places = np.mod(0.5 + np.arange(1, count + 1)[:, None] * LATTICE, 1.0) - 0.5
        centres = places * (1.5 * width, 0.24) + (0.0, nose_y(person) - 0.02)
        dots = centres[:, None] + ellipse((0.0, 0.0), (0.015, 0.015), steps=6)
        canvas.tint(on_face(dots), mix(scale(skin, 0.6), (140, 70, 30), 0.4), 0.6)
