"""What varies between photographs of one identity, drawn at random for each: pose, expression, light."""

from dataclasses import dataclass, field

import numpy as np

from gif_core.synthetic.canvas import Pose
from gif_core.synthetic.colours import Colour, mix

OCCLUSIONS = ("hand", "mask", "sunglasses", "hat")
OCCLUSION_RATE = 0.12


@dataclass(frozen=True)
class Expression:
    """The facial expression."""

    smile: float = 0.2
    mouth_open: float = 0.0
    brow_raise: float = 0.0
    eyes_open: float = 1.0
    gaze: float = 0.0


@dataclass(frozen=True)
class Light:
    """Where the light comes from, how strong and how warm it is."""

    direction: tuple[float, float, float] = (0.0, 0.0, 1.0)
    ambient: float = 0.6
    diffuse: float = 0.5
    tint: Colour = (1.0, 1.0, 1.0)
    saturation: float = 1.0


@dataclass(frozen=True)
class Shot:
    """Everything that varies between photographs."""

    pose: Pose = field(default_factory=Pose)
    expression: Expression = field(default_factory=Expression)
    light: Light = field(default_factory=Light)
    backdrop: tuple[Colour, Colour] = ((150.0, 160.0, 170.0), (90.0, 100.0, 110.0))
    clothes: Colour = (60.0, 70.0, 110.0)
    occlusion: str | None = None
    occlusion_colour: Colour = (200.0, 200.0, 210.0)
    blur: float = 0.0
    noise: float = 0.0


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    return float(rng.uniform(low, high))


def _around(rng: np.random.Generator, spread: float, limit: float) -> float:
    return max(-limit, min(limit, rng.normal(0.0, spread)))


def _colour(rng: np.random.Generator) -> Colour:
    red, green, blue = rng.uniform(15.0, 240.0, 3).tolist()
    grey = (red + green + blue) / 3
    return mix((red, green, blue), (grey, grey, grey), 0.35)


def random_pose(rng: np.random.Generator) -> Pose:
    """A head turned, nodded, tilted and framed about as loosely as a detector's crop."""
    return Pose(
        yaw=_around(rng, 0.24, 0.5),
        pitch=_around(rng, 0.14, 0.3),
        roll=_around(rng, 0.10, 0.25),
        zoom=_between(rng, 1.0, 1.25),
        shift=(_around(rng, 0.05, 0.12), _around(rng, 0.05, 0.12)),
    )


def random_expression(rng: np.random.Generator) -> Expression:
    """A face at rest, smiling, talking, surprised or blinking."""
    return Expression(
        smile=_between(rng, -0.4, 1.0),
        mouth_open=max(0.0, _between(rng, -0.8, 1.0)),
        brow_raise=_between(rng, -0.4, 1.0),
        eyes_open=1.0 - 0.85 * max(0.0, _between(rng, -2.0, 1.0)),
        gaze=_between(rng, -1.0, 1.0),
    )


def random_light(rng: np.random.Generator) -> Light:
    """Light from a side, harsh or flat, dim or glaring, warm or cold."""
    angle, height = _between(rng, 0.0, 2 * np.pi), _between(rng, 0.2, 1.0)
    side = float(np.sqrt(1.0 - height**2))
    exposure, harshness = float(np.exp(_between(rng, -0.5, 0.3))), _between(rng, 0.3, 0.8)
    warmth, green = _between(rng, -0.22, 0.22), _between(rng, -0.06, 0.06)
    return Light(
        direction=(side * float(np.cos(angle)), side * float(np.sin(angle)), height),
        ambient=exposure * (1.15 - harshness),
        diffuse=exposure * harshness * 1.2,
        tint=(1.0 + warmth, 1.0 + green, 1.0 - warmth),
        saturation=_between(rng, 0.4, 1.2),
    )


def random_shot(rng: np.random.Generator) -> Shot:
    """Draw everything that varies between photographs."""
    return Shot(
        pose=random_pose(rng),
        expression=random_expression(rng),
        light=random_light(rng),
        backdrop=(_colour(rng), _colour(rng)),
        clothes=_colour(rng),
        occlusion=str(rng.choice(OCCLUSIONS)) if rng.random() < OCCLUSION_RATE else None,
        occlusion_colour=_colour(rng),
        blur=max(0.0, _between(rng, -0.8, 1.0)),
        noise=_between(rng, 1.0, 8.0),
    )
