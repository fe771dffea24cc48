"""Verification scores of all pairs of images as histograms per identity, and what follows from them.

Accuracy and TAR at a FAR are functions of two histograms, of genuine and of impostor pairs. Kept per identity, they can
be added up again for any resampling of the identities: a bootstrap costs one matrix product. A pair of different
identities counts half for each of them.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

BINS = 8192
RESAMPLES = 1000
CHUNK = 2048
Counts = NDArray[np.float64]


@dataclass(frozen=True)
class PairHistograms:
    """Number of pairs by identity and cosine; the last bin is the largest cosine."""

    genuine_PC: Counts
    impostor_PC: Counts

    def weigh(self, weights_RP: Counts) -> tuple[Counts, Counts]:
        """Shares of genuine and of impostor pairs above the lower edge of each bin, by weighting of identities."""
        return _shares_above(weights_RP @ self.genuine_PC), _shares_above(weights_RP @ self.impostor_PC)


def count_pairs(features_ND: torch.Tensor, labels_N: NDArray[np.int64]) -> PairHistograms:
    """Histograms of the cosines of all pairs of images."""
    z_ND = F.normalize(features_ND.double(), dim=1).float()
    people, owner_N = np.unique(labels_N, return_inverse=True)
    owner = torch.from_numpy(owner_N)
    counts = torch.zeros(2, len(people) * BINS, dtype=torch.float64)
    for start in range(0, len(z_ND), CHUNK):
        part = slice(start, start + CHUNK)
        bins = ((z_ND[part] @ z_ND.T + 1) * (BINS / 2)).long().clamp_(0, BINS - 1)
        places = owner[part, None] * BINS + bins
        same = owner[part, None] == owner
        same_other = same.clone()
        same_other[torch.arange(len(places)), torch.arange(start, start + len(places))] = False
        counts[0] += torch.bincount(places[same_other], minlength=counts.shape[1])
        counts[1] += torch.bincount(places[~same], minlength=counts.shape[1])
    genuine, impostor = (counts / 2).numpy().reshape(2, len(people), BINS)
    return PairHistograms(genuine, impostor)


def _shares_above(counts_RC: Counts) -> Counts:
    above = counts_RC[:, ::-1].cumsum(axis=1)[:, ::-1]
    return above / above[:, :1]


def measure(histograms: PairHistograms, fars: tuple[float, ...], weights_RP: Counts) -> Counts:
    """Accuracy at its best threshold, with as many genuine as impostor pairs, and TAR at each FAR [R, 1 + FARs]."""
    true_RC, false_RC = histograms.weigh(weights_RP)
    accuracy = ((true_RC + 1 - false_RC) / 2).max(axis=1)
    rows = np.arange(len(weights_RP))
    tars = [true_RC[rows, (false_RC > far).sum(axis=1).clip(max=BINS - 1)] for far in fars]
    return np.stack([accuracy, *tars], axis=1)


def draw_weights(people: int, seed: int = 0) -> Counts:
    """How often each identity is drawn in each resample; the first row is the data as it is."""
    drawn = np.random.default_rng(seed).multinomial(people, np.full(people, 1 / people), RESAMPLES)
    return np.concatenate([np.ones((1, people)), drawn]).astype(np.float64)
