"""The palettes a face is painted with, and how colours mix (RGB, 0 to 255)."""

from itertools import pairwise

Colour = tuple[float, float, float]
Palette = tuple[tuple[float, Colour], ...]

SKIN: Palette = (
    (0.0, (250, 222, 200)),
    (0.35, (236, 194, 160)),
    (0.55, (200, 148, 108)),
    (0.75, (142, 94, 64)),
    (1.0, (84, 54, 40)),
)
HAIR: Palette = (
    (0.0, (16, 14, 15)),
    (0.2, (36, 28, 25)),
    (0.3, (78, 50, 32)),
    (0.48, (112, 74, 44)),
    (0.54, (152, 62, 26)),
    (0.66, (190, 88, 38)),
    (0.72, (212, 166, 88)),
    (0.84, (236, 206, 132)),
    (0.9, (166, 165, 166)),
    (1.0, (222, 221, 220)),
)
IRIS: Palette = (
    (0.0, (52, 32, 20)),
    (0.35, (104, 64, 30)),
    (0.6, (84, 124, 62)),
    (0.8, (70, 128, 182)),
    (1.0, (138, 160, 172)),
)
LIPS: Palette = ((0.0, (176, 112, 100)), (0.5, (188, 78, 82)), (1.0, (158, 38, 62)))
FRAMES: Palette = (
    (0.0, (22, 22, 26)),
    (0.3, (92, 52, 26)),
    (0.5, (176, 36, 40)),
    (0.7, (32, 74, 150)),
    (1.0, (206, 170, 84)),
)


def pick(palette: Palette, position: float) -> Colour:
    """The colour at `position` in [0, 1] along a palette, interpolated between its anchors."""
    for (start, first), (end, second) in pairwise(palette):
        if position <= end:
            return mix(first, second, (position - start) / (end - start))
    return palette[-1][1]


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """`first` with a `share` of `second` in it."""
    keep = 1.0 - share
    return (
        keep * first[0] + share * second[0],
        keep * first[1] + share * second[1],
        keep * first[2] + share * second[2],
    )


def scale(colour: Colour, factor: float) -> Colour:
    """A colour made darker or lighter."""
    return colour[0] * factor, colour[1] * factor, colour[2] * factor
