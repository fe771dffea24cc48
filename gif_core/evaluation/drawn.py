"""Verification of drawn identities by an encoder alone."""

from typing import Final

import numpy as np

from gif_core.embedding.encoders import ImageEncoder
from gif_core.protocols import draw_pairs, pair_distances, verify_distances
from gif_core.synthetic import draw_face

FOLDS: Final = 10
SAMPLES: Final = 6
"""Photographs of an identity."""
PAIRS: Final = 1500


def verify_drawn(encoder: ImageEncoder, seed: int, identities: int) -> float:
    """Return the accuracy on pairs of drawn identities, half of them of one identity."""
    chunks = []
    for identity in range(identities):
        images = np.stack([draw_face(seed, identity, sample) for sample in range(SAMPLES)])
        chunks.append(encoder.encode(images).cpu().numpy())
    labels_N = np.repeat(np.arange(identities), SAMPLES)
    pairs = draw_pairs(labels_N, pairs=PAIRS, seed=seed, folds=FOLDS)
    distance_P = pair_distances(np.concatenate(chunks), pairs.left, pairs.right)
    return verify_distances(distance_P, pairs.same, FOLDS).accuracy
