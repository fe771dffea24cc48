"""The baseline without a network: distances between raw pixels."""

# Shapes: P pairs.

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.images import Images
from gif_core.protocols import Pairs, pair_distances

PAIRS_AT_ONCE: Final = 1024
"""Pairs in memory at a time: at most 80 MB of pixels."""


def pixel_distances(faces: Images, pairs: Pairs) -> NDArray[np.float64]:
    """Squared distance of each pair of images, each taken as one unit-length vector of pixels."""
    distance_P = np.empty(len(pairs))
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        rows, left, right = pairs.needed_images(part)
        distance_P[part] = pair_distances(faces.load(rows).reshape(len(rows), -1), left, right)
    return distance_P
