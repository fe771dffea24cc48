"""The Gaussian potential of vectors on the sphere (Eq. 4 to 6): its uniform limit, its mean, its gradient.

For unit vectors exp(-t |a-b|^2) = exp(2t (a.b - 1)), so the loss and its gradient are matrix products.
"""

# Shapes: N vectors, D dimensions, B rows of a batch, M rows of a chunk, P pairs, K terms of a series.

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor

from gif_core.runtime import CHUNK, ShardedRows

SAFE_EXPONENT: Final = 40.0
"""Above this exponent a sum of exp(2t) could overflow float32, so the exponent is shifted to at most 0."""
BLOCK: Final = 2048
"""Rows per block when all pairs are measured."""


def uniform_limit(dimension: int, temperature: float) -> float:
    """Eq. 5 at its minimum: log E[exp(2t(u-1))] for a cosine u of the uniform distribution on the sphere.

    The closed form Gamma(d/2) t^(1-d/2) I_{d/2-1}(2t) e^{-2t} underflows for the orders of real encoders, so
    its series, sum_k t^(2k) / ((d/2)_k k!), is summed in the log domain: all its terms are positive.
    """
    if dimension < 1 or temperature <= 0:
        raise ValueError(f"dimension and temperature must be positive, got {dimension} and {temperature}")
    order_K = np.arange(64 + int(8 * temperature))
    ratio_K = 2 * np.log(temperature) - np.log(dimension / 2 + order_K) - np.log(order_K + 1)
    return float(np.logaddexp.reduce(np.concatenate([[0.0], np.cumsum(ratio_K)])) - 2 * temperature)


def mean_potential(vectors_ND: Tensor, temperature: float, block: int = BLOCK) -> float:
    """Eq. 5: log of the mean potential over distinct pairs, exact, computed in blocks.

    Pairs of a vector with itself are left out: their constant 1 would add 1/(m E) to the ratio, 12 % at m=440, and
    hide how close the rest is to the limit. As a consequence, few vectors can lie below the limit of the continuum.
    """
    num_vectors = len(vectors_ND)
    if num_vectors < 2:
        raise ValueError(f"the potential needs at least 2 vectors, got {num_vectors}")
    total = 0.0
    for cosine_P in pair_cosines(vectors_ND, block):
        total += float(torch.exp(2 * temperature * (cosine_P - 1)).sum(dtype=torch.float64))
    return float(np.log(total / (num_vectors * (num_vectors - 1) / 2)))


def batch_potential(rows: ShardedRows, batch_B: Tensor, temperature: float) -> float:
    """Eq. 6 without self pairs: log of the mean potential between a batch and all other vectors.

    `batch_B` is in ascending order; there must be at least two vectors.
    """
    _, total_B = _force(rows, batch_B, rows.take(batch_B), temperature, self_pairs=False, chunk=CHUNK)
    total = float(rows.add(total_B.sum(dtype=torch.float64)))
    factor = 0.0 if 2 * temperature > SAFE_EXPONENT else 2 * temperature
    return float(np.log(max(total, np.finfo(np.float64).tiny) / (len(batch_B) * (rows.total - 1)))) - factor


def pair_cosines(vectors_ND: Tensor, block: int = BLOCK) -> Iterator[Tensor]:
    """Yield the cosine of every distinct pair once, a block of pairs at a time."""
    for start in range(0, len(vectors_ND), block):
        rows_MD = vectors_ND[start : start + block]
        if len(rows_MD) > 1:
            above_2P = torch.triu_indices(len(rows_MD), len(rows_MD), 1, device=vectors_ND.device)
            yield (rows_MD @ rows_MD.T)[above_2P[0], above_2P[1]]
        for other in range(start + block, len(vectors_ND), block):
            yield (rows_MD @ vectors_ND[other : other + block].T).flatten()


def mean_cosine(rows: ShardedRows) -> float:
    """Return the exact mean cosine over distinct pairs, (|sum h|^2 - sum |h|^2) / (m (m - 1)); 0 without a pair."""
    if rows.total < 2:
        return 0.0
    sums_D = torch.zeros(rows.local.shape[1] + 1, dtype=torch.float64, device=rows.device)
    for _, chunk_MD in rows.chunks(BLOCK):
        sums_D[:-1] += chunk_MD.sum(dim=0, dtype=torch.float64)
        sums_D[-1] += torch.linalg.vector_norm(chunk_MD, dim=1, dtype=torch.float64).square().sum()
    sums_D = rows.add(sums_D)
    return float(sums_D[:-1] @ sums_D[:-1] - sums_D[-1]) / (rows.total * (rows.total - 1))


def batch_gradient(
    rows: ShardedRows, batch_B: Tensor, temperature: float, *, self_pairs: bool = False, chunk: int = CHUNK
) -> Tensor:
    """Gradient of Eq. 6 for the rows of a batch, in their tangent space: (2t / sum S) S H.

    Two matrix products without autograd; at most B x chunk similarities exist at a time, so that they stay in the
    CPU cache. `batch_B` is in ascending order. A self pair pushes along the row itself, which is orthogonal to the
    tangent space, so self pairs only count in the normaliser.
    """
    batch_BD = rows.take(batch_B)
    force_BD, total_B = _force(rows, batch_B, batch_BD, temperature, self_pairs=self_pairs, chunk=chunk)
    total = rows.add(total_B.sum(dtype=torch.float64)).clamp_min(torch.finfo(batch_BD.dtype).tiny)
    return tangent(rows.add(force_BD), batch_BD) * (2 * temperature / total).to(batch_BD.dtype)


def tangent(force_BD: Tensor, at_BD: Tensor) -> Tensor:
    """Return the component of a force that is tangent to the sphere."""
    return torch.addcmul(force_BD, (force_BD * at_BD).sum(dim=1, keepdim=True), at_BD, value=-1)


def _force(
    rows: ShardedRows, batch_B: Tensor, batch_BD: Tensor, temperature: float, *, self_pairs: bool, chunk: int
) -> tuple[Tensor, Tensor]:
    """Return this process's share of S H and of the row sums of S, up to a common factor.

    The factor exp(-2t) of the potential cancels in the gradient, so it is left out.
    """
    shift = 2 * temperature if 2 * temperature > SAFE_EXPONENT else 0.0
    scaled_BD = batch_BD * (2 * temperature)
    force_BD, total_B = torch.zeros_like(batch_BD), batch_BD.new_zeros(len(batch_BD))
    buffer = batch_BD.new_empty(len(batch_BD) * min(chunk, max(len(rows.local), 1)))
    bounds = _bounds(rows, batch_B, chunk)
    for (start, chunk_MD), (begin, end) in zip(rows.chunks(chunk), bounds, strict=True):
        potential_BM = buffer[: len(batch_BD) * len(chunk_MD)].view(len(batch_BD), len(chunk_MD))
        torch.mm(scaled_BD, chunk_MD.T, out=potential_BM)
        if shift:
            potential_BM.sub_(shift)
        potential_BM.exp_()
        if not self_pairs and begin < end:
            potential_BM[torch.arange(begin, end), batch_B[begin:end] - start] = 0
        total_B += potential_BM.sum(dim=1)
        force_BD.addmm_(potential_BM, chunk_MD)
    return force_BD, total_B


def _bounds(rows: ShardedRows, batch_B: Tensor, chunk: int) -> list[tuple[int, int]]:
    """Find which part of the batch lies in each chunk, before the loop, so that the loop never waits for the device."""
    starts = torch.arange(rows.first, rows.first + len(rows.local), chunk)
    ends = (starts + chunk).clamp_max(rows.first + len(rows.local))
    places = torch.searchsorted(batch_B.cpu(), torch.stack([starts, ends])).tolist()
    return list(zip(*places, strict=True))
