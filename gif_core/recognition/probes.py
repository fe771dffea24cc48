"""Images of enrolled identities: new ones where the project can draw them, else those that the model was trained on."""

# Shapes: N images in all, B images in a batch, P identities.

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
"""The second part of the seeds here."""
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChosenImages:
    """Some images, and who is on them."""

    images: Images
    rows_N: Rows
    person_N: Rows
    origin: Literal["new", "training", "held_out"]
    """`new`: of identities who were trained on, but no image that was."""


@dataclass(frozen=True, slots=True)
class DrawnFaces:
    """Photographs of identities whom the project draws: for each the source's seed, the person and the photograph."""

    places_N3: Rows

    def load(self, indices: Rows) -> NDArray[np.uint8]:
        """Drawn when they are asked for, with the losses of JPEG."""
        return np.stack([decode(draw_jpeg(*place)) for place in self.places_N3[indices].tolist()])


def choose_enrolled(
    sources: Sequence[Source], identities: pa.Table, faces: Faces, most: int, seed: int
) -> ChosenImages:
    """Up to `most` images of enrolled identities, who take turns.

    Identities of a synthetic source get photographs after the last that the source can have; they are new to the model.
    If there are no such identities, images of the training are taken.
    """
    rng = np.random.default_rng([seed, ENROLLED])
    drawn = [number for number, source in enumerate(sources) if isinstance(source, SyntheticSource)]
    identities_P = np.flatnonzero(np.isin(identities["source"].to_numpy(), drawn))
    if not len(identities_P):
        rows_N = take_turns(faces.labels_N, most, rng)
        return ChosenImages(faces, rows_N, faces.labels_N[rows_N], "training")
    turn_N = np.arange(most)
    person_N = rng.permutation(identities_P)[turn_N % len(identities_P)]
    source_N, labels = identities["source"].to_numpy()[person_N], identities["label"].take(person_N).to_pylist()
    places = [
        (source.seed, number_of(label), source.largest + turn)
        for source, label, turn in zip(
            map(sources.__getitem__, source_N), labels, turn_N // len(identities_P), strict=True
        )
        if isinstance(source, SyntheticSource)
    ]
    return ChosenImages(DrawnFaces(np.array(places)), turn_N, person_N, "new")


def choose_unknown(faces: Faces, most: int, seed: int) -> ChosenImages:
    """Up to `most` images of identities who were held out."""
    rows_N = take_turns(faces.labels_N, most, np.random.default_rng([seed, UNKNOWN]))
    return ChosenImages(faces, rows_N, faces.labels_N[rows_N], "held_out")


def take_turns(labels_N: Rows, most: int, rng: np.random.Generator) -> Rows:
    """Up to `most` rows: one of all identities, then a second one, and so on; in each turn in random order."""
    shuffled_N = rng.permutation(len(labels_N))
    by_person_N = shuffled_N[np.argsort(labels_N[shuffled_N], kind="stable")]
    _, starts, counts = np.unique(labels_N[by_person_N], return_index=True, return_counts=True)
    turn_N = np.arange(len(labels_N)) - np.repeat(starts, counts)
    chosen = np.lexsort((rng.random(len(turn_N)), turn_N))[:most]
    return np.sort(by_person_N[chosen])
