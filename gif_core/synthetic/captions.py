"""Captions of synthetic faces, to train CLIP on, and prompts to query it."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from gif_core.synthetic.attributes import Person, describe

PHRASES: Final[Mapping[str, Mapping[str, str]]] = {
    "skin_tone": {"light": "light skin", "tan": "tan skin", "dark": "dark skin"},
    "hair_colour": {word: f"{word} hair" for word in ("black", "brown", "red", "blond", "grey")},
    "hair_length": {"bald": "a bald head", "short": "short hair", "medium": "medium length hair", "long": "long hair"},
    "beard": {"none": "clean-shaven", "stubble": "stubble", "full": "a full beard"},
    "glasses": {"none": "uncovered eyes", "glasses": "glasses"},
}
"""Phrase for each word of `describe`."""

DETAILS: Final[Mapping[str, tuple[str, ...]]] = {
    "face_width": ("a narrow face", "a wide face"),
    "jaw_width": ("a pointed jaw", "a square jaw"),
    "hair_volume": ("flat hair", "full hair"),
    "hair_curl": ("straight hair", "wavy hair", "curly hair"),
    "fringe": ("a bare forehead", "a fringe"),
    "eye_size": ("small eyes", "large eyes"),
    "eye_spacing": ("close-set eyes", "wide-set eyes"),
    "eye_colour": ("brown eyes", "green eyes", "blue eyes"),
    "brow_thickness": ("thin brows", "thick brows"),
    "nose_width": ("a narrow nose", "a broad nose"),
    "nose_length": ("a short nose", "a long nose"),
    "mouth_width": ("a small mouth", "a wide mouth"),
    "lip_thickness": ("thin lips", "full lips"),
    "freckles": ("clear skin", "some freckles", "many freckles"),
    "age": ("a young look", "a mature look", "an old look"),
}
"""Finer features in equal steps from 0 to 1."""

TEMPLATES: Final = ("a photo of a person with {}", "a face with {}", "a portrait of somebody with {}", "{}")
FEWEST_MENTIONED: Final = 0.1
DETAILS_MENTIONED: Final = 0.2
"""Smallest share of main features that a caption mentions, and the share of details relative to main features."""


def caption(attributes: ArrayLike, rng: np.random.Generator) -> str:
    """A random description of an identity: some of its features, in random order."""
    share = rng.uniform(FEWEST_MENTIONED, 1.0)
    shares = [share] * len(PHRASES) + [share * DETAILS_MENTIONED] * len(DETAILS)
    facts = zip(questions(), answers(attributes), shares, strict=True)
    chosen = [phrases[true] for phrases, true, rate in facts if rng.random() < rate and true is not None]
    rng.shuffle(chosen)
    return str(rng.choice(TEMPLATES)).format(", ".join(chosen or ["a face"]))


def questions() -> list[list[str]]:
    """For every feature, the phrases of which one applies to an identity."""
    return [list(phrases.values()) for phrases in PHRASES.values()] + [list(phrases) for phrases in DETAILS.values()]


def answers(attributes: ArrayLike) -> list[int | None]:
    """Index of the phrase that applies to each question; None for the hair colour of a bald head."""
    words, person = describe(attributes), Person(*np.asarray(attributes, np.float64).tolist())
    unseen = {"hair_colour"} if words["hair_length"] == "bald" else set()
    main = [None if name in unseen else list(phrases).index(words[name]) for name, phrases in PHRASES.items()]
    return main + [_step(person, name) for name in DETAILS]


def prompts(attribute: str) -> dict[str, list[str]]:
    """For each word of an attribute, the sentences that describe it."""
    return {word: [t.format(phrase) for t in TEMPLATES] for word, phrase in PHRASES[attribute].items()}


def _step(person: Person, name: str) -> int:
    return min(int(getattr(person, name) * len(DETAILS[name])), len(DETAILS[name]) - 1)
