"""A closed-form start for separation: remove the common mean and flatten the spectrum.

Near uniformity, at t = 2, the loss (Eq. 5) exceeds its limit by 4 E[u] + 8 (E[u^2] - 1/d), where u is the cosine of a
pair. It is therefore minimal when the mean is zero and the variance is equal in all directions. Of all cosine matrices
with a given E[u^2], the one closest to the initial matrix K has the form a K + b I on the span of the vectors: every
variance moves the same share of the way to the mean variance. This reaches the requested gap with the smallest change
of the cosines.
"""

# Shapes: D dimensions, M rows of a chunk, B rows of a sample.

from typing import Final

import torch
from torch import Tensor

from gif_core.runtime import ShardedRows
from gif_core.separation.potential import mean_potential, uniform_limit

CENTRINGS: Final = 5
"""Normalising after removing the mean leaves a small mean again, so both are repeated."""
HALVINGS: Final = 12
"""Bisection steps; they find the share to 1/4096."""
SHORTEST: Final = 1e-5
"""A vector that is shorter than this without the mean has no direction of its own and is left unchanged."""


def equalise(rows: ShardedRows, sample_B: Tensor, *, temperature: float, gap: float) -> float:
    """Flatten the spectrum by the smallest share that brings the sample's gap to `gap`; return that share."""
    centre(rows)
    spectrum_D, basis_DD = _spectrum(rows)
    share = _least_share(rows.take(sample_B), spectrum_D, basis_DD, temperature, gap)
    if share:
        map_DD = _map(spectrum_D, basis_DD, share).to(rows.local.dtype)
        rows.change(lambda chunk_MD: _unit_or_same(chunk_MD @ map_DD, chunk_MD))
        centre(rows)
    return share


def centre(rows: ShardedRows) -> None:
    """Remove the common mean and normalise, `CENTRINGS` times."""
    for _ in range(CENTRINGS):
        sum_D = torch.zeros(rows.local.shape[1], dtype=torch.float64, device=rows.device)
        for _, chunk_MD in rows.chunks():
            sum_D += chunk_MD.sum(dim=0, dtype=torch.float64)
        mean_D = (rows.add(sum_D) / rows.total).to(rows.local.dtype)
        rows.change(lambda chunk_MD, mean_D=mean_D: _unit_or_same(chunk_MD - mean_D, chunk_MD))  # type: ignore[misc]


def _spectrum(rows: ShardedRows) -> tuple[Tensor, Tensor]:
    """Return the variances along the principal directions and these directions, in float64."""
    moment_DD = torch.zeros((rows.local.shape[1],) * 2, dtype=torch.float64, device=rows.device)
    for _, chunk_MD in rows.chunks():
        moment_DD += (chunk_MD.T @ chunk_MD).double()
    variance_D, basis_DD = torch.linalg.eigh(rows.add(moment_DD) / rows.total)
    return variance_D.clamp_min(0), basis_DD


def _map(variance_D: Tensor, basis_DD: Tensor, share: float) -> Tensor:
    """Return the linear map that moves every variance `share` of the way to the mean variance.

    Directions without variance are mapped to zero.
    """
    wanted_D = (1 - share) * variance_D + share * variance_D.mean()
    used_D = variance_D > variance_D.mean() * 1e-9
    scale_D = torch.where(used_D, (wanted_D / variance_D.clamp_min(1e-300)).sqrt(), 0.0)
    return basis_DD * scale_D @ basis_DD.T


def _least_share(sample_BD: Tensor, variance_D: Tensor, basis_DD: Tensor, temperature: float, gap: float) -> float:
    """Find the smallest sufficient share by bisection: the gap falls as the spectrum gets flatter."""
    limit = uniform_limit(sample_BD.shape[1], temperature)

    def is_flat(share: float) -> bool:
        mapped_BD = sample_BD @ _map(variance_D, basis_DD, share).to(sample_BD.dtype)
        return mean_potential(_unit_or_same(mapped_BD, sample_BD), temperature) - limit <= gap

    if is_flat(0.0):
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_flat(middle) else (middle, high)
    return high


def _unit_or_same(new_MD: Tensor, old_MD: Tensor) -> Tensor:
    """Normalise the new rows; a row that has lost its direction keeps its old value."""
    length_M1 = torch.linalg.vector_norm(new_MD, dim=1, keepdim=True)
    return torch.where(length_M1 > SHORTEST, new_MD / length_M1.clamp_min(SHORTEST), old_MD)
