"""The head: neck, ears, face outline and hair."""

# Shapes: P points, K control points, S strands of hair, 2 coordinates.

import numpy as np

from gif_core.synthetic.attributes import Person, word_for
from gif_core.synthetic.canvas import Canvas, Points, at_depth, ellipse, on_face, pair, smooth
from gif_core.synthetic.colours import HAIR, SKIN, Colour, mix, pick, scale

SKULL_TOP = -0.66
NECK_DEPTH = -0.15
HAIR_DEPTH = -0.2
HAIR_FALL = ((0.08, 0.45, 0.46, 0.72, 0.73, 1.0), (-0.16, 0.1, 0.3, 0.55, 0.9, 1.4))
STRAND_STEPS = np.linspace(0.12, 0.8, 9)[:, None]


def span(value: float, low: float, high: float) -> float:
    """Where a value of [0, 1] falls between two ends."""
    return low + (high - low) * value


def mirrored(right_K2: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A right half going down, completed by its mirror image going up."""
    return right_K2 + [(-x, y) for x, y in reversed(right_K2)]


def skin_colour(person: Person) -> Colour:
    """Skin of the person's tone, leaning to pink or to olive."""
    red, green, blue = pick(SKIN, person.skin_tone)
    lean = span(person.skin_hue, -1.0, 1.0)
    return min(red * (1 + 0.03 * lean), 255.0), green * (1 - 0.05 * lean), blue * (1 + 0.07 * lean)


def half_width(person: Person) -> float:
    """From the middle of the face to a cheekbone."""
    return span(person.face_width, 0.43, 0.58)


def chin_y(person: Person) -> float:
    """How low the chin is."""
    return span(person.chin_length, 0.66, 0.86)


def face_outline(person: Person) -> Points:
    """The closed outline of skull, cheeks, jaw and chin."""
    width, chin = half_width(person), chin_y(person)
    jaw = width * span(person.jaw_width, 0.66, 0.98)
    right = [
        (0.35 * width, SKULL_TOP),
        (0.86 * width, -0.42),
        (width, -0.02),
        (jaw, 0.42 * chin / 0.72),
        (jaw * span(person.jaw_width, 0.42, 0.62), 0.9 * chin),
        (0.12, chin),
    ]
    return smooth(mirrored(right))


def paint_body(canvas: Canvas, person: Person, clothes: Colour) -> None:
    """Shoulders and neck."""
    skin, chin = skin_colour(person), chin_y(person)
    neck = 0.62 * half_width(person)
    shoulders = [(neck, chin + 0.12), (0.85, chin + 0.3), (1.3, 1.8)]
    canvas.fill(at_depth(smooth(mirrored(shoulders)), NECK_DEPTH), clothes)
    throat = [(neck, 0.4), (neck, chin + 0.12), (0.5 * neck, chin + 0.26)]
    canvas.fill(at_depth(mirrored(throat), NECK_DEPTH), scale(skin, 0.72))


def paint_face(canvas: Canvas, person: Person) -> None:
    """Ears and the bare face with its soft shading."""
    skin, width, size = skin_colour(person), half_width(person), span(person.ear_size, 0.08, 0.17)
    for share, darkness in ((1.0, 0.9), (0.55, 0.74)):
        ear = ellipse((width + 0.25 * size, 0.06), (0.55 * share * size, share * size))
        canvas.fill(at_depth(pair(ear), NECK_DEPTH), scale(skin, darkness))
    outline = face_outline(person)
    canvas.fill(at_depth(outline, 0.0), scale(skin, 0.86))
    canvas.tint([at_depth(outline * (0.86, 0.9), 0.1)], skin, 1.0, softness=0.12)
    blush = mix(skin, (214, 84, 80), 0.5)
    cheek = ellipse((0.56 * width, 0.24), (0.14, 0.1))
    canvas.tint(on_face(pair(cheek)), blush, 0.3, softness=0.12)


def is_bald(person: Person) -> bool:
    """Whether there is no hair to draw."""
    return word_for("hair_length", person.hair_length) == "bald"


def hair_bottom(person: Person) -> float:
    """How far the hair falls, with a gap between the short, medium and long."""
    return float(np.interp(person.hair_length, *HAIR_FALL))


def hair_outline(person: Person) -> list[tuple[float, float]]:
    """The right half of the hair's outer edge, from the crown down to the ear."""
    volume = span(person.hair_volume, 0.02, 0.2)
    width, top = half_width(person) + 0.02 + 0.8 * volume, SKULL_TOP - volume
    return [(0.35 * width, top), (0.8 * width, 0.78 * top), (1.02 * width, -0.34), (1.04 * width, -0.1)]


def curl(points_P2: Points, person: Person) -> Points:
    """Wave an outline in and out around the head's middle."""
    angle = np.arctan2(points_P2[:, 0], -points_P2[:, 1])
    wave = 0.05 * max(0.0, person.hair_curl - 0.3) * np.sin(span(person.hair_curl, 14.0, 30.0) * angle)
    return points_P2 * (1.0 + wave)[:, None]


def paint_back_hair(canvas: Canvas, person: Person) -> None:
    """The hair behind the face."""
    if is_bald(person):
        return
    outer, bottom = hair_outline(person), hair_bottom(person)
    width = outer[-1][0]
    if bottom > 0.2:
        outer = [*outer, (width * 1.06, 0.5 * bottom), (width * span(person.hair_curl, 0.95, 1.2), bottom)]
    else:
        outer = [*outer, (0.9 * width, bottom + 0.1)]
    shape = curl(smooth(mirrored(outer), steps=10), person)
    canvas.fill(at_depth(shape, HAIR_DEPTH), scale(pick(HAIR, person.hair_colour), 0.78))


def hairline(person: Person) -> list[tuple[float, float]]:
    """The edge of the hair on the forehead, from the right temple to the left one."""
    width, part = half_width(person), span(person.hair_parting, -0.32, 0.32)
    top = span(person.hairline, -0.34, -0.56)
    fall = min(top + span(person.fringe, 0.0, 0.22), -0.26)
    return [
        (0.97 * width, -0.08),
        (0.86 * width, -0.28),
        (0.5 * (part + 0.86 * width), fall),
        (part, top - 0.06),
        (0.5 * (part - 0.86 * width), fall),
        (-0.86 * width, -0.28),
        (-0.97 * width, -0.08),
    ]


def paint_front_hair(canvas: Canvas, person: Person) -> None:
    """The hair above the forehead, combed away from its parting."""
    if is_bald(person):
        return
    colour, outer, inner = pick(HAIR, person.hair_colour), hair_outline(person), hairline(person)
    crown = [(-x, y) for x, y in reversed(outer)] + outer
    shape = curl(smooth(crown + inner, steps=8), person)
    canvas.fill(at_depth(shape, 0.08), colour)
    root = np.array([inner[3][0], SKULL_TOP])
    ends = np.array([*outer[1:], *inner[1:3], (-outer[1][0], outer[1][1]), *inner[4:6]])
    light, dark = mix(colour, (255, 240, 220), 0.15), scale(colour, 0.76)
    strands = at_depth(_strands(root, ends, person.hair_curl), 0.08)
    canvas.stroke(strands[::2], light, 0.018)
    canvas.stroke(strands[1::2], dark, 0.018)


def _strands(root: Points, ends_S2: Points, curliness: float) -> Points:
    """Locks of hair from the parting towards the edge, wavy if the hair is."""
    t, ends = STRAND_STEPS, ends_S2[:, None]
    bow = (root + ends) / 2 + (0.0, -0.08)
    path = (1 - t) ** 2 * root + 2 * t * (1 - t) * bow + t**2 * ends
    return np.asarray(path + 0.03 * max(0.0, curliness - 0.3) * np.sin(22 * t))
