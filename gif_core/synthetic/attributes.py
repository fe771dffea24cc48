"""Attributes of a synthetic identity, their coarse words, and its number of images."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

PERSON_TAG = 1
COUNT_TAG = 2
PARETO_SHAPE = 1.1


class Person(NamedTuple):
    """Everything that stays the same between two photographs of one person, each in [0, 1]."""

    skin_tone: float
    skin_hue: float
    face_width: float
    jaw_width: float
    chin_length: float
    ear_size: float
    hair_colour: float
    hair_length: float
    hair_volume: float
    hair_curl: float
    hair_parting: float
    hairline: float
    fringe: float
    eye_size: float
    eye_spacing: float
    eye_tilt: float
    eye_colour: float
    eye_height: float
    brow_thickness: float
    brow_angle: float
    brow_height: float
    nose_length: float
    nose_width: float
    mouth_width: float
    mouth_height: float
    lip_thickness: float
    lip_colour: float
    beard_density: float
    beard_shape: float
    glasses: float
    glasses_shape: float
    glasses_size: float
    glasses_colour: float
    mole_x: float
    mole_y: float
    freckles: float
    age: float


ATTRIBUTES: tuple[str, ...] = Person._fields

# Each attribute's words with the value at which each word ends.
WORDS: dict[str, tuple[tuple[float, str], ...]] = {
    "skin_tone": ((0.4, "light"), (0.7, "tan"), (1.0, "dark")),
    "hair_colour": ((0.25, "black"), (0.5, "brown"), (0.68, "red"), (0.86, "blond"), (1.0, "grey")),
    "hair_length": ((0.08, "bald"), (0.45, "short"), (0.72, "medium"), (1.0, "long")),
    "beard_density": ((0.55, "none"), (0.75, "stubble"), (1.0, "full")),
    "glasses": ((0.65, "none"), (1.0, "glasses")),
}


def word_for(attribute: str, value: float) -> str:
    """The coarse word for a value of an attribute."""
    return next(word for end, word in WORDS[attribute] if value <= end)


def describe(attributes: ArrayLike) -> dict[str, str]:
    """Coarse words for the most visible attributes: skin tone, hair, beard and glasses."""
    person = Person(*np.asarray(attributes, dtype=np.float64).tolist())
    return {
        "skin_tone": word_for("skin_tone", person.skin_tone),
        "hair_colour": word_for("hair_colour", person.hair_colour),
        "hair_length": word_for("hair_length", person.hair_length),
        "beard": word_for("beard_density", person.beard_density),
        "glasses": word_for("glasses", person.glasses),
    }


def identity_attributes(seed: int, identity: int) -> NDArray[np.float64]:
    """The attributes of one identity, uniform and independent, in the order of `ATTRIBUTES`."""
    return np.random.default_rng([seed, PERSON_TAG, identity]).random(len(ATTRIBUTES))


def sample_count(seed: int, identity: int, *, smallest: int, largest: int) -> int:
    """A long-tailed number of images: a Pareto distribution from `smallest`, cut at `largest`."""
    if not 1 <= smallest <= largest:
        raise ValueError(f"need 1 <= smallest <= largest, got {smallest} and {largest}")
    rng = np.random.default_rng([seed, COUNT_TAG, identity])
    return min(int(smallest * (1.0 + rng.pareto(PARETO_SHAPE))), largest)
