"""Probe images: of enrolled identities (new ones for synthetic sources, else training images) and of held-out ones."""

# Shapes: N images, P identities.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gif_core.images import Faces, Images, decode
from gif_core.synthetic import draw_jpeg, number_of
from schemas.ingestion import Source, SyntheticSource

ENROLLED: Final = 603
UNKNOWN: Final = 604
"""Stream ids: the second part of the seeds used here."""
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChosenImages:
    """Some images with their identities."""

    images: Images
    rows_N: Rows
    identity_N: Rows
    origin: Literal["new", "training", "held_out"]
    """`new`: identities of the training set, images that were not in it."""


@dataclass(frozen=True, slots=True)
class DrawnFaces:
    """Synthetic images, given by the seed of the source, the number of the identity and the number of the image."""

    places_N3: Rows

    def load(self, indices: Rows) -> NDArray[np.uint8]:
        """Draw these images, with JPEG compression."""
        return np.stack([decode(draw_jpeg(*place)) for place in self.places_N3[indices].tolist()])


def choose_enrolled(
    sources: Sequence[Source], identities: pa.Table, faces: Faces, most: int, seed: int
) -> ChosenImages:
    """Up to `most` images of enrolled identities, spread evenly over them.

    Identities of a synthetic source get images numbered after its last one, so they are new to the model. Without a
    synthetic source, training images are used.
    """
    rng = np.random.default_rng([seed, ENROLLED])
    drawn = [number for number, source in enumerate(sources) if isinstance(source, SyntheticSource)]
    identities_P = np.flatnonzero(np.isin(identities["source"].to_numpy(), drawn))
    if not len(identities_P):
        rows_N = take_turns(faces.labels_N, most, rng)
        return ChosenImages(faces, rows_N, faces.labels_N[rows_N], "training")
    turn_N = np.arange(most)
    identity_N = rng.permutation(identities_P)[turn_N % len(identities_P)]
    source_N, labels = identities["source"].to_numpy()[identity_N], identities["label"].take(identity_N).to_pylist()
    places = [
        (source.seed, number_of(label), source.largest + turn)
        for source, label, turn in zip(
            map(sources.__getitem__, source_N), labels, turn_N // len(identities_P), strict=True
        )
        if isinstance(source, SyntheticSource)
    ]
    return ChosenImages(DrawnFaces(np.array(places)), turn_N, identity_N, "new")


def choose_unknown(faces: Faces, most: int, seed: int) -> ChosenImages:
    """Up to `most` images of held-out identities."""
    rows_N = take_turns(faces.labels_N, most, np.random.default_rng([seed, UNKNOWN]))
    return ChosenImages(faces, rows_N, faces.labels_N[rows_N], "held_out")


def take_turns(labels_N: Rows, most: int, rng: np.random.Generator) -> Rows:
    """Up to `most` rows in rounds: one row of every identity, then a second one, and so on; random within a round."""
    shuffled_N = rng.permutation(len(labels_N))
    by_identity_N = shuffled_N[np.argsort(labels_N[shuffled_N], kind="stable")]
    _, starts, counts = np.unique(labels_N[by_identity_N], return_index=True, return_counts=True)
    turn_N = np.arange(len(labels_N)) - np.repeat(starts, counts)
    chosen = np.lexsort((rng.random(len(turn_N)), turn_N))[:most]
    return np.sort(by_identity_N[chosen])
