"""Features of all images by identity, centred; and the scale on which groups of images are compared."""

# Shapes: N images, P identities, D dimensions, M pairs, G groups.

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
CHUNK: Final = 65_536
"""Images that are read at a time."""
SHRINKAGE: Final = 0.3
"""Share of the mean variance that is added to the variance of every direction."""


class Vectors:
    """Features of all images, centred and of unit length when they are read; the matrix may be a mapped file."""

    def __init__(self, features_ND: Floats, person_N: Ints) -> None:
        """Find the mean, and the images of each identity."""
        self.features_ND, self.person_N = features_ND, person_N
        total_D = np.zeros(features_ND.shape[1])
        for start in range(0, len(features_ND), CHUNK):
            total_D += features_ND[start : start + CHUNK].sum(axis=0, dtype=np.float64)
        self.mean_D = (total_D / max(len(features_ND), 1)).astype(np.float32)
        self.order_N = np.argsort(person_N, kind="stable")
        self.identities = int(person_N.max()) + 1
        self.counts_P = np.bincount(person_N, minlength=self.identities)

    def __getitem__(self, rows: Ints) -> Floats:
        """Centred unit vectors of some images."""
        return unit(self.features_ND[rows].astype(np.float32) - self.mean_D)

    def by_identity(self) -> Iterator[Ints]:
        """The images of each identity, in the order of identities."""
        ends = np.cumsum(self.counts_P).tolist()
        for start, end in pairwise([0, *ends]):
            yield self.order_N[start:end]

    def cosines(self, left_M: Ints, right_M: Ints) -> Floats:
        """Cosines of pairs of images."""
        parts = [
            np.einsum("md,md->m", self[left_M[start : start + CHUNK]], self[right_M[start : start + CHUNK]])
            for start in range(0, len(left_M), CHUNK)
        ]
        return np.concatenate([np.empty(0, np.float32), *parts])


def unit(rows_ND: Floats) -> Floats:
    """Rows of unit length; rows of zeros stay."""
    lengths_N = np.linalg.norm(rows_ND, axis=1, keepdims=True)
    unit_ND: Floats = rows_ND / np.maximum(lengths_N, np.float32(1e-12))
    return unit_ND


class Scatter:
    """How images of one person scatter around their mean, summed over main groups."""

    def __init__(self, dimension: int) -> None:
        """Nothing is added yet."""
        self.total_DD = np.zeros((dimension, dimension))
        self.freedom = 0

    def add(self, z_nD: Floats) -> None:
        """Add the images of one group."""
        apart_nD = (z_nD - z_nD.mean(axis=0)).astype(np.float64)
        self.total_DD += apart_nD.T @ apart_nD
        self.freedom += len(z_nD) - 1

    def whitening(self) -> Floats:
        """A map [D, D] after which two images of one person have a squared distance of about 2."""
        dimension = len(self.total_DD)
        within_DD = self.total_DD / max(self.freedom, 1)
        level = np.trace(within_DD) / dimension or 1.0
        map_DD = np.linalg.cholesky(np.linalg.inv(within_DD + SHRINKAGE * level * np.eye(dimension)))
        spread = np.trace(map_DD.T @ within_DD @ map_DD) or 1.0
        return np.asarray(map_DD / np.sqrt(spread), np.float32)


def distances(x_GD: Floats, size_G: Ints, others_GD: Floats, other_size_G: Ints) -> Floats:
    """Squared distances of means, times n·m / (n + m): about 1 for two parts of one person, whatever their sizes."""
    square_G = np.square(x_GD - others_GD).sum(axis=-1)
    scaled_G: Floats = square_G * (size_G * other_size_G / (size_G + other_size_G)).astype(np.float32)
    return scaled_G
