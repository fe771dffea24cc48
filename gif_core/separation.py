"""Separation: spreading code vectors over the sphere with the Gaussian potential (Eq. 4 to 6).

Shapes: N vectors, D dimensions, B rows of a batch, M rows of a chunk, K neighbours, P pairs.
For unit vectors exp(-t |a-b|^2) = exp(2t (a.b - 1)), so the loss and its gradient are matrix products.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from schemas.separation import SeparationConfig

CHUNK = 8192
"""Rows of H held against a batch at a time."""
MEASURED_ROWS = 4096
"""The loss of an epoch is exact up to this many vectors, and that of a fixed sample beyond."""
NEIGHBOUR_ROWS = 2000
"""The neighbourhood kept is measured on so many rows, against everybody."""
_ORDER, _LOSS_SAMPLE, _NEIGHBOUR_SAMPLE = range(3)


@dataclass(frozen=True)
class SeparationStep:
    """The state after an epoch; epoch 0 is the start. Each step owns its vectors."""

    epoch: int
    epochs: int
    loss: float
    gap: float
    mean_cosine: float
    neighbours_kept: float | None
    """Measured at epochs 0, 1, 2, 4, 8, ... and the last; None in between."""
    vectors_ND: torch.Tensor


@dataclass(frozen=True)
class SeparationScores:
    """Pairwise cosine distance over all pairs (the paper's Figure 4)."""

    min: float
    mean: float
    max: float


def separate(vectors_ND: torch.Tensor, config: SeparationConfig, *, seed: int) -> Iterator[SeparationStep]:
    """Minimise Eq. 6 over the batches of every epoch until `epochs` or `target_gap` is reached.

    Only the batch moves; the rows it is held against stay ("a subset of H at every iteration").
    A single vector has no pair: it is returned as it is, with a gap of 0.
    """
    vectors_ND = unit_rows(vectors_ND)
    num_vectors, dimension = vectors_ND.shape
    limit = uniform_limit(dimension, config.temperature)
    measured_N = _sample(num_vectors, MEASURED_ROWS, [seed, _LOSS_SAMPLE], vectors_ND.device)
    rows_B = _sample(num_vectors, NEIGHBOUR_ROWS, [seed, _NEIGHBOUR_SAMPLE], vectors_ND.device)
    before_BK = _nearest(vectors_ND, rows_B, 10)
    for epoch in range(config.epochs + 1):
        if epoch:
            vectors_ND = _run_epoch(vectors_ND, config, np.random.default_rng([seed, _ORDER, epoch]))
        loss = mean_potential(vectors_ND[measured_N], config.temperature) if num_vectors > 1 else limit
        gap = loss - limit
        reached = num_vectors == 1 or (config.target_gap is not None and gap <= config.target_gap)
        last = reached or epoch == config.epochs
        due = last or epoch & (epoch - 1) == 0
        kept = _overlap(before_BK, _nearest(vectors_ND, rows_B, 10)) if due else None
        yield SeparationStep(epoch, config.epochs, loss, gap, mean_cosine(vectors_ND), kept, vectors_ND)
        if last:
            return


def uniform_limit(dimension: int, temperature: float) -> float:
    """Eq. 5 at its minimum: log E[exp(2t(u-1))] for a cosine u of the uniform distribution on the sphere.

    The closed form Gamma(d/2) t^(1-d/2) I_{d/2-1}(2t) e^{-2t} underflows for the orders of real encoders, so
    its series, sum_k t^(2k) / ((d/2)_k k!), is summed in the log domain: all its terms are positive.
    """
    if dimension < 1 or temperature <= 0:
        raise ValueError(f"no sphere has dimension={dimension}, or no potential temperature={temperature}")
    order_K = np.arange(64 + int(8 * temperature))
    ratio_K = 2 * np.log(temperature) - np.log(dimension / 2 + order_K) - np.log(order_K + 1)
    return float(np.logaddexp.reduce(np.concatenate([[0.0], np.cumsum(ratio_K)])) - 2 * temperature)


def mean_potential(vectors_ND: torch.Tensor, temperature: float, chunk: int = CHUNK) -> float:
    """Eq. 5: log of the mean potential over distinct pairs, exact, by chunks.

    A pair of a vector with itself is left out: its constant 1 would add 1/(m E) to the ratio, 12 % at m=440,
    and hide how near the rest is to its limit. Few vectors can so lie below the limit of the continuum.
    """
    num_vectors = len(vectors_ND)
    if num_vectors < 2:
        raise ValueError(f"{num_vectors} vectors have no pair")
    total = 0.0
    for cosine_P in _pair_cosines(vectors_ND, chunk):
        total += float(torch.exp(2 * temperature * (cosine_P - 1)).sum(dtype=torch.float64))
    return float(np.log(total / (num_vectors * (num_vectors - 1) / 2)))


def mean_cosine(vectors_ND: torch.Tensor) -> float:
    """Mean cosine over distinct pairs, exact: (|sum h|^2 - m) / (m (m - 1)); 0 when there is no pair."""
    num_vectors = len(vectors_ND)
    if num_vectors < 2:
        return 0.0
    sum_D = vectors_ND.sum(dim=0, dtype=torch.float64)
    squares = float(torch.linalg.vector_norm(vectors_ND, dim=1, dtype=torch.float64).square().sum())
    return (float(sum_D @ sum_D) - squares) / (num_vectors * (num_vectors - 1))


def batch_gradient(
    vectors_ND: torch.Tensor,
    batch_B: torch.Tensor,
    temperature: float,
    *,
    self_pairs: bool = False,
    chunk: int = CHUNK,
) -> torch.Tensor:
    """Gradient of Eq. 6 for the rows of a batch, in their tangent space: (2t / sum S) S H.

    Two matrix products, no graph, and never more than B x chunk similarities. Self pairs push along the row
    itself, which the tangent space does not contain: they only count in the normaliser.
    """
    batch_BD = vectors_ND[batch_B]
    force_BD = torch.zeros_like(batch_BD)
    total = torch.zeros((), dtype=torch.float64, device=vectors_ND.device)
    for start in range(0, len(vectors_ND), chunk):
        chunk_MD = vectors_ND[start : start + chunk]
        potential_BM = batch_BD @ chunk_MD.T
        potential_BM.sub_(1).mul_(2 * temperature).exp_()
        if not self_pairs:
            own = ((batch_B >= start) & (batch_B < start + chunk)).nonzero()[:, 0]
            potential_BM[own, batch_B[own] - start] = 0
        total += potential_BM.sum(dtype=torch.float64)
        force_BD.addmm_(potential_BM, chunk_MD)
    radial_B1 = (force_BD * batch_BD).sum(dim=1, keepdim=True)
    tangent_BD = force_BD - radial_B1 * batch_BD
    return tangent_BD * (2 * temperature / total.clamp_min(1e-30)).to(tangent_BD.dtype)


def neighbours_kept(
    start_ND: torch.Tensor,
    now_ND: torch.Tensor,
    *,
    neighbours: int = 10,
    sample: int = NEIGHBOUR_ROWS,
    seed: int = 0,
) -> float:
    """Share of each vector's nearest neighbours at the start that are still so now, over sampled rows."""
    if start_ND.shape != now_ND.shape:
        raise ValueError(f"shapes differ: {tuple(start_ND.shape)} and {tuple(now_ND.shape)}")
    rows_B = _sample(len(start_ND), sample, [seed, _NEIGHBOUR_SAMPLE], start_ND.device)
    return _overlap(_nearest(start_ND, rows_B, neighbours), _nearest(now_ND, rows_B, neighbours))


def separation_scores(vectors_ND: torch.Tensor, chunk: int = CHUNK) -> SeparationScores:
    """Min, mean and max cosine distance over all pairs, exact, by chunks."""
    vectors_ND = unit_rows(vectors_ND)
    if len(vectors_ND) < 2:
        raise ValueError(f"{len(vectors_ND)} vectors have no pair")
    smallest, largest = 1.0, -1.0
    for cosine_P in _pair_cosines(vectors_ND, chunk):
        smallest, largest = min(smallest, float(cosine_P.min())), max(largest, float(cosine_P.max()))
    return SeparationScores(min=max(1 - largest, 0.0), mean=1 - mean_cosine(vectors_ND), max=min(1 - smallest, 2.0))


def unit_rows(vectors_ND: torch.Tensor) -> torch.Tensor:
    """The vectors on the unit sphere, detached; anything that has no direction is refused."""
    if vectors_ND.ndim != 2 or not len(vectors_ND):
        raise ValueError(f"expected at least one row of vectors, got shape {tuple(vectors_ND.shape)}")
    norm_N1: torch.Tensor = torch.linalg.vector_norm(vectors_ND.detach(), dim=1, keepdim=True)
    bad_N = ~(norm_N1[:, 0].isfinite() & (norm_N1[:, 0] > 0))
    if bad_N.any():
        raise ValueError(f"vector {int(bad_N.nonzero()[0, 0])} is zero or not finite: it has no direction")
    return vectors_ND.detach() / norm_N1


def _run_epoch(vectors_ND: torch.Tensor, config: SeparationConfig, rng: np.random.Generator) -> torch.Tensor:
    """One pass over all batches in random order, on a copy."""
    vectors_ND = vectors_ND.clone()
    order_N = torch.from_numpy(rng.permutation(len(vectors_ND))).to(vectors_ND.device)
    literal = config.recipe == "literal"
    for batch_B in torch.split(order_N, config.batch_size):
        gradient_BD = batch_gradient(vectors_ND, batch_B, config.temperature, self_pairs=literal)
        rate = config.learning_rate if literal else config.learning_rate * len(batch_B)
        moved_BD = vectors_ND[batch_B] - rate * gradient_BD
        vectors_ND[batch_B] = moved_BD / torch.linalg.vector_norm(moved_BD, dim=1, keepdim=True)
    return vectors_ND


def _pair_cosines(vectors_ND: torch.Tensor, chunk: int) -> Iterator[torch.Tensor]:
    """The cosine of every distinct pair, each once, a chunk of pairs at a time."""
    for start in range(0, len(vectors_ND), chunk):
        rows_MD = vectors_ND[start : start + chunk]
        square_MM = rows_MD @ rows_MD.T
        if len(rows_MD) > 1:
            above_MM = torch.ones_like(square_MM, dtype=torch.bool).triu_(1)
            yield square_MM[above_MM]
        for other in range(start + chunk, len(vectors_ND), chunk):
            yield rows_MD @ vectors_ND[other : other + chunk].T


def _overlap(before_BK: torch.Tensor, after_BK: torch.Tensor) -> float:
    """Share of the first indices that are among the second, row by row; 1 when there are none."""
    if not before_BK.shape[1]:
        return 1.0
    return float((before_BK[:, :, None] == after_BK[:, None, :]).any(dim=2).double().mean())


def _nearest(vectors_ND: torch.Tensor, rows_B: torch.Tensor, neighbours: int) -> torch.Tensor:
    """Indices of the nearest other vectors of some rows, exact, by chunks."""
    neighbours = min(neighbours, len(vectors_ND) - 1)
    best_BK = vectors_ND.new_full((len(rows_B), 0), 0.0)
    index_BK = rows_B.new_zeros((len(rows_B), 0))
    for start in range(0, len(vectors_ND), CHUNK):
        cosine_BM = vectors_ND[rows_B] @ vectors_ND[start : start + CHUNK].T
        column_M = torch.arange(start, start + cosine_BM.shape[1], device=rows_B.device)
        cosine_BM.masked_fill_(column_M == rows_B[:, None], -torch.inf)
        candidates_BP = torch.cat([best_BK, cosine_BM], dim=1)
        names_BP = torch.cat([index_BK, column_M.expand(len(rows_B), -1)], dim=1)
        best_BK, place_BK = candidates_BP.topk(min(neighbours, candidates_BP.shape[1]), dim=1)
        index_BK = names_BP.gather(1, place_BK)
    return index_BK


def _sample(population: int, size: int, seeds: list[int], device: torch.device) -> torch.Tensor:
    """Sorted indices of a fixed random sample, or of everybody when there are no more."""
    chosen_B = np.random.default_rng(seeds).choice(population, min(size, population), replace=False)
    return torch.from_numpy(np.sort(chosen_B)).to(device)
