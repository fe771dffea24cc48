"""Groups of images of one person inside an identity: average linkage of the cosines between its images."""

# Shapes: n images of an identity, S images that are compared with each other, D dimensions, K groups.

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

Floats = NDArray[np.float32]
MOST: Final = 1000
"""Images of an identity that are compared with each other; further ones join the group that they are most like."""


def group_images(z_nD: Floats, threshold: float) -> NDArray[np.int64]:
    """Number the groups of an identity's images, the largest first.

    Groups are joined while the mean cosine between their images reaches the threshold.
    """
    if len(z_nD) == 1:
        return np.zeros(1, np.int64)
    chosen_S = np.unique(np.linspace(0, len(z_nD) - 1, min(len(z_nD), MOST)).astype(np.int64))
    group_S = _link(z_nD[chosen_S], threshold)
    group_n = group_S if len(chosen_S) == len(z_nD) else _join(z_nD, chosen_S, group_S)
    return _largest_first(group_n)


def _link(z_SD: Floats, threshold: float) -> NDArray[np.int64]:
    cosines_SS = z_SD @ z_SD.T
    upper = np.triu_indices(len(z_SD), 1)
    tree = linkage(1.0 - cosines_SS[upper].astype(np.float64), method="average")
    groups: NDArray[np.int64] = fcluster(tree, 1.0 - threshold, criterion="distance").astype(np.int64) - 1
    return groups


def _join(z_nD: Floats, chosen_S: NDArray[np.int64], group_S: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the images that were not compared to the group with the highest mean cosine."""
    counts_K = np.bincount(group_S)
    means_KD = np.zeros((len(counts_K), z_nD.shape[1]), np.float32)
    np.add.at(means_KD, group_S, z_nD[chosen_S])
    group_n: NDArray[np.int64] = np.argmax(z_nD @ (means_KD / counts_K[:, None]).T, axis=1)
    group_n[chosen_S] = group_S
    return group_n


def _largest_first(group_n: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number groups by size; of groups of one size the one with the first image comes first."""
    _, first, inverse, counts = np.unique(group_n, return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), np.int64)
    rank[np.lexsort((first, -counts))] = np.arange(len(counts))
    return rank[inverse]
