"""How much structure a separation keeps: shared nearest neighbours, and rank correlation of similarities."""

# Shapes: N vectors, D dimensions, B rows of a batch, M rows of a chunk, C candidates, K neighbours, P pairs.

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gif_core.runtime import ShardedRows

NEIGHBOURS: Final = 10
NEIGHBOUR_ROWS: Final = 2000
"""Neighbours are measured for a sample of this many rows, searched among all rows."""
RANKED_PAIRS: Final = 10_000
"""Number of sampled pairs whose similarities are ranked."""
SEARCH_CHUNK: Final = 4096
_ROWS, _PAIRS = range(1, 3)


@dataclass(frozen=True)
class Kept:
    """Agreement with the start."""

    neighbours: float
    """Share of the 10 nearest neighbours at the start that are still among the 10 nearest."""
    spearman: float
    """Rank correlation of the similarities of sampled pairs, at the start and now."""


class Neighbourhoods:
    """Neighbours and similarities of sampled rows at the start, for later comparison."""

    def __init__(self, rows: ShardedRows, *, seed: int) -> None:
        """Record the neighbours of sampled rows and the similarities of sampled pairs."""
        self.sample_B = sample(rows.total, NEIGHBOUR_ROWS, [seed, _ROWS])
        self.pairs_2P = sample_pairs(rows.total, RANKED_PAIRS, [seed, _PAIRS])
        self.nearest_BK = nearest(rows, self.sample_B, NEIGHBOURS)
        self.similarity_P = similarities(rows, self.pairs_2P)

    def kept(self, rows: ShardedRows) -> Kept:
        """Compare the start with the rows as they are now."""
        now_BK = nearest(rows, self.sample_B, NEIGHBOURS)
        return Kept(overlap(self.nearest_BK, now_BK), spearman(self.similarity_P, similarities(rows, self.pairs_2P)))


def nearest(rows: ShardedRows, batch_B: Tensor, neighbours: int) -> Tensor:
    """Return the indices of the nearest other vectors of some rows, nearest first; exact, in chunks."""
    neighbours = min(neighbours, rows.total - 1)
    batch_BD, batch_B = rows.take(batch_B), batch_B.to(rows.device)
    best_BK = batch_BD.new_full((len(batch_B), neighbours), -torch.inf)
    index_BK = batch_B.new_zeros((len(batch_B), neighbours))
    for start, chunk_MD in rows.chunks(SEARCH_CHUNK):
        cosine_BM = batch_BD @ chunk_MD.T
        column_M = torch.arange(start, start + len(chunk_MD), device=rows.device)
        cosine_BM.masked_fill_(column_M == batch_B[:, None], -torch.inf)
        found_BK, place_BK = cosine_BM.topk(min(neighbours, len(chunk_MD)), dim=1)
        best_BK, index_BK = _best(
            torch.cat([best_BK, found_BK], 1), torch.cat([index_BK, place_BK + start], 1), neighbours
        )
    return _best(rows.join(best_BK), rows.join(index_BK), neighbours)[1]


def nearest_of_all(rows: ShardedRows, neighbours: int, batch_size: int) -> ShardedRows:
    """Return the nearest other vectors of every row."""
    found = rows.like(min(neighbours, rows.total - 1), torch.int64)
    for batch_B in torch.split(torch.arange(rows.total), batch_size):
        found.put(batch_B, nearest(rows, batch_B, neighbours))
    return found


def overlap(before_BK: Tensor, after_BK: Tensor) -> float:
    """Return the share of indices `before` that are also `after`, compared row by row; 1 when there are none."""
    if not before_BK.shape[1]:
        return 1.0
    return float((before_BK[:, :, None] == after_BK[:, None, :]).any(dim=2).double().mean())


def similarities(rows: ShardedRows, pairs_2P: Tensor) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows."""
    cosine_P = (rows.take(pairs_2P[0]) * rows.take(pairs_2P[1])).sum(dim=1)
    return cosine_P.double().cpu().numpy()


def spearman(before_P: NDArray[np.float64], after_P: NDArray[np.float64]) -> float:
    """Return the rank correlation; 1 when all values before are equal, as there is no order to lose."""
    if len(before_P) < 2 or before_P.std() == 0:
        return 1.0
    if after_P.std() == 0:
        return 0.0
    return float(np.corrcoef(_ranks(before_P), _ranks(after_P))[0, 1])


def neighbours_kept(start_ND: Tensor, now_ND: Tensor, *, neighbours: int = NEIGHBOURS, seed: int = 0) -> float:
    """Return the share of nearest neighbours at the start that still are nearest now, over sampled rows."""
    if start_ND.shape != now_ND.shape:
        raise ValueError(f"shapes differ: {tuple(start_ND.shape)} and {tuple(now_ND.shape)}")
    rows_B = sample(len(start_ND), NEIGHBOUR_ROWS, [seed, _ROWS])
    return overlap(nearest(ShardedRows(start_ND), rows_B, neighbours), nearest(ShardedRows(now_ND), rows_B, neighbours))


def sample(population: int, size: int, seeds: list[int]) -> Tensor:
    """Return the sorted indices of a fixed random sample, or all indices if the population is smaller."""
    chosen_B = np.random.default_rng(seeds).choice(population, min(size, population), replace=False)
    return torch.from_numpy(np.sort(chosen_B))


def sample_pairs(population: int, size: int, seeds: list[int]) -> Tensor:
    """Draw pairs of different indices with replacement; no pairs when there is only one vector."""
    if population < 2:
        return torch.zeros((2, 0), dtype=torch.int64)
    rng = np.random.default_rng(seeds)
    first_P = rng.integers(population, size=size)
    second_P = (first_P + rng.integers(1, population, size=size)) % population
    return torch.from_numpy(np.stack([first_P, second_P]))


def _best(values_BC: Tensor, index_BC: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row and their indices."""
    best_BK, place_BK = values_BC.topk(count, dim=1)
    return best_BK, index_BC.gather(1, place_BK)


def _ranks(values_P: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each value; equal values share their mean rank."""
    _, place_P, counts = np.unique(values_P, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place_P]
    return ranks
