"""Pairwise cosine distances: minimum, mean and maximum over all pairs (the paper's Figure 4), and their histogram."""

# Shapes: N vectors, D dimensions, P pairs, T bins.

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gif_core.runtime import ShardedRows, unit_rows
from gif_core.separation.potential import BLOCK, mean_cosine, pair_cosines

BINS: Final = 200
"""Equal-width bins of cosine distance over [0, 2]."""
SCORED_ROWS: Final = 32_768
"""Distances are those of all pairs up to so many vectors, and of a fixed sample of so many beyond."""


@dataclass(frozen=True)
class SeparationScores:
    """Cosine distance over all pairs."""

    min: float
    mean: float
    max: float


def separation_scores(vectors_ND: Tensor, block: int = BLOCK) -> SeparationScores:
    """Exact minimum, mean and maximum cosine distance over all pairs, computed in blocks."""
    return measure_distances(vectors_ND, block)[0]


def measure_distances(vectors_ND: Tensor, block: int = BLOCK) -> tuple[SeparationScores, NDArray[np.int64]]:
    """Return the scores and the number of pairs in each distance bin."""
    vectors_ND = unit_rows(vectors_ND)
    if len(vectors_ND) < 2:
        raise ValueError(f"distances need at least 2 vectors, got {len(vectors_ND)}")
    smallest, largest = 1.0, -1.0
    counts_T = np.zeros(BINS, np.int64)
    for cosine_P in pair_cosines(vectors_ND, block):
        low, high = torch.aminmax(cosine_P)
        smallest, largest = min(smallest, float(low)), max(largest, float(high))
        counts_T += _count(cosine_P)
    mean = 1 - mean_cosine(ShardedRows(vectors_ND))
    return SeparationScores(max(1 - largest, 0.0), mean, min(1 - smallest, 2.0)), counts_T


def bin_edges() -> NDArray[np.float64]:
    """Return the left edge of every bin."""
    return np.linspace(0, 2, BINS + 1)[:-1]


def _count(cosine_P: Tensor) -> NDArray[np.int64]:
    """Count pairs per bin; rounding may put a cosine just outside [-1, 1]."""
    bin_P = ((1 - cosine_P) * (BINS / 2)).clamp_(0, BINS - 1).to(torch.int32)
    return torch.bincount(bin_P, minlength=BINS).cpu().numpy()
