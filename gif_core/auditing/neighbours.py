"""The nearest other identities of groups: candidates by direction (FAISS), then the distance of means."""

# Shapes: Q groups, P identities, K candidates, D dimensions.

from dataclasses import dataclass
from typing import Final

import numpy as np

from gif_core.auditing.vectors import Floats, Ints, distances, unit
from gif_core.galleries import Index, build_index

CANDIDATES: Final = 16
"""Identities of which the distance is computed."""
BATCH: Final = 4096
"""Groups that are searched for at a time."""


@dataclass(frozen=True)
class Neighbours:
    """The two nearest other identities of some groups; infinite where there are fewer."""

    nearest_Q: Floats
    second_Q: Floats
    identity_Q: Ints


def find_neighbours(
    mean_QD: Floats, size_Q: Ints, own_Q: Ints, mean_PD: Floats, size_P: Ints, identity_P: Ints
) -> Neighbours:
    """Search for groups of identities `own_Q` among the means of identities `identity_P`, ascending.

    Exact up to some size, compressed candidates above it: no matrix of all pairs is made.
    """
    index = build_index(unit(mean_PD))
    parts = [
        _search(index, mean_QD[part], size_Q[part], own_Q[part], mean_PD, size_P, identity_P)
        for part in (slice(start, start + BATCH) for start in range(0, len(mean_QD), BATCH))
    ]
    return Neighbours(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _search(
    index: Index, mean_QD: Floats, size_Q: Ints, own_Q: Ints, mean_PD: Floats, size_P: Ints, identity_P: Ints
) -> tuple[Floats, Floats, Ints]:
    _, places_QK = index.search(unit(mean_QD), CANDIDATES)
    apart_QK = distances(mean_QD[:, None], size_Q[:, None], mean_PD[places_QK], size_P[places_QK])
    apart_QK[(places_QK < 0) | (identity_P[places_QK] == own_Q[:, None])] = np.inf
    if apart_QK.shape[1] == 1:
        apart_QK = np.pad(apart_QK, ((0, 0), (0, 1)), constant_values=np.inf)
    best_Q = np.argmin(apart_QK, axis=1)
    lowest_Q2 = np.partition(apart_QK, 1, axis=1)
    return lowest_Q2[:, 0], lowest_Q2[:, 1], identity_P[places_QK[np.arange(len(best_Q)), best_Q]]
