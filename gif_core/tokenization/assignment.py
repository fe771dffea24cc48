"""Assignment of rows to clusters of limited capacity (the bound below Eq. 6): prices, then an exact repair."""

# Shapes: N rows, K clusters, R rows of one cluster, S seats of all clusters.

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from gif_core.tokenization.prices import clearing_prices

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.int64]

FEW_ROWS = 256
"""Up to this many rows every seat is a column of its own, and `linear_sum_assignment` finds the optimum."""
_FINE, _COARSE = 1e-8, 1e-4
_MANY_MOVES = 16


def assign_bounded(similarity_NK: Floats, *, capacity: int) -> Integers:
    """Assign each row to a cluster so that no cluster exceeds `capacity` (the bound below Eq. 6).

    Maximises the summed similarity: prices (the dual variables) settle nearly all rows, then the cheapest chains of
    moves settle the rest. The result is optimal, except that nearly equal rows are moved together.
    """
    num_rows, num_clusters = similarity_NK.shape
    if num_clusters * capacity < num_rows:
        raise ValueError(f"{num_clusters} clusters of {capacity} seats cannot hold {num_rows} identities")
    refuse_not_finite(similarity_NK, "similarities")
    if not num_rows:
        return np.zeros(0, dtype=np.int64)
    labels_N: Integers = similarity_NK.argmax(axis=1)
    if np.bincount(labels_N).max() <= capacity:
        return labels_N
    if num_rows <= FEW_ROWS:
        return _assign_seats(similarity_NK, min(capacity, num_rows))
    similarity_KN = np.ascontiguousarray(similarity_NK.T)
    price_K = clearing_prices(similarity_KN, capacity).astype(similarity_KN.dtype)
    # For any prices these labels are optimal for the cluster sizes they produce, which is what the repair requires.
    return _Repair(similarity_KN, (similarity_KN - price_K[:, None]).argmax(axis=0), capacity).run()


def _assign_seats(similarity_NK: Floats, capacity: int) -> Integers:
    """Solve a small problem exactly, with one column per seat."""
    seats_NS = np.repeat(similarity_NK.astype(np.float64), capacity, axis=1)
    labels_N: Integers = linear_sum_assignment(seats_NS, maximize=True)[1] // capacity
    return labels_N


def refuse_not_finite(values: Floats, name: str, first_row: int = 0) -> None:
    """Raise `ValueError` naming the first row with a value that is not finite; rows count from `first_row`."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        raise ValueError(f"the {name} of row {first_row + int(bad.argmax())} are not finite")


class _Repair:
    """Moves rows along the cheapest chains of clusters until none is overfull and no chain gains anything.

    Successive shortest paths of minimum-cost flow over the K clusters. Rows whose losses agree within a tolerance
    move together; the tolerance is larger where very many rows have to move, as among near duplicates.
    """

    def __init__(self, similarity_KN: Floats, labels_N: Integers, capacity: int) -> None:
        self.similarity_KN, self.labels_N, self.capacity = similarity_KN, labels_N, capacity
        self.num_clusters = len(similarity_KN)
        self.size_K = np.bincount(labels_N, minlength=self.num_clusters)
        self.scale = max(float(similarity_KN.max()), -float(similarity_KN.min()), 1e-300)
        self.cost_KK = np.full((self.num_clusters, self.num_clusters), np.inf)
        for k in range(self.num_clusters):
            self._price_leaving(k)
        excess = int(np.maximum(self.size_K - capacity, 0).sum())
        self.tolerance = self.scale * (_COARSE if excess > _MANY_MOVES * self.num_clusters else _FINE)

    def run(self) -> Integers:
        """Return the labels with all clusters within capacity."""
        slack = self.tolerance * self.num_clusters
        while True:
            overfull_K = self.size_K > self.capacity
            distance_K, previous_K = _shortest_chains(
                self.cost_KK, overfull_K if overfull_K.any() else self.size_K > 0, slack
            )
            distance_K[self.size_K >= self.capacity] = np.inf
            end = int(distance_K.argmin())
            if not overfull_K.any() and not distance_K[end] < -slack:
                return self.labels_N
            self._move(_trace(previous_K, end), overflow=bool(overfull_K.any()))

    def _move(self, chain: list[int], *, overflow: bool) -> None:
        """Move rows with about the same loss from each cluster of the chain to the next, as many as possible."""
        source, sink = chain[0], chain[-1]
        steps = list(pairwise(chain))
        room = 1
        if overflow and source != sink:
            room = min(self.size_K[source] - self.capacity, self.capacity - self.size_K[sink])
        movers = [self._cheapest_movers(here, there, room) for here, there in steps]
        amount = min(len(rows) for rows in movers)
        for (here, there), rows in zip(steps, movers, strict=True):
            self.labels_N[rows[:amount]] = there
            self.size_K[here] -= amount
            self.size_K[there] += amount
        for k in set(chain):
            self._price_leaving(k)

    def _losses(self, k: int) -> tuple[Integers, Floats]:
        """Return the rows of cluster k and what each would lose in every cluster."""
        rows_R = np.flatnonzero(self.labels_N == k)
        similarity_KR = self.similarity_KN[:, rows_R].astype(np.float64)
        return rows_R, similarity_KR[k] - similarity_KR

    def _price_leaving(self, k: int) -> None:
        """Update the smallest cost of moving a row of cluster k to each other cluster."""
        self.cost_KK[k] = self._losses(k)[1].min(axis=1, initial=np.inf)
        self.cost_KK[k, k] = np.inf

    def _cheapest_movers(self, here: int, there: int, most: int) -> Integers:
        """Return at most `most` rows whose move has the smallest loss, up to the tolerance."""
        rows_R, loss_KR = self._losses(here)
        order = loss_KR[there].argsort(kind="stable")[:most]
        movers: Integers = rows_R[order[loss_KR[there, order] <= self.cost_KK[here, there] + self.tolerance]]
        return movers


def _shortest_chains(cost_KK: Floats, sources_K: npt.NDArray[np.bool_], slack: float) -> tuple[Floats, Integers]:
    """Bellman-Ford from all sources at once: return the cost to reach each cluster and its predecessor."""
    distance_K = np.where(sources_K, 0.0, np.inf)
    previous_K = np.full(len(cost_KK), -1, dtype=np.int64)
    for _ in range(len(cost_KK)):
        through_KK = distance_K[:, None] + cost_KK
        best_K = through_KK.argmin(axis=0)
        reached_K = through_KK[best_K, np.arange(len(cost_KK))]
        better_K = reached_K < distance_K - slack
        if not better_K.any():
            break
        distance_K[better_K] = reached_K[better_K]
        previous_K[better_K] = best_K[better_K]
    return distance_K, previous_K


def _trace(previous_K: Integers, end: int) -> list[int]:
    """Return the chain that leads to `end`; a cycle on the way, which is a gain by itself, is returned instead."""
    chain = [end]
    while (before := int(previous_K[chain[-1]])) >= 0:
        if before in chain:
            return [before, *chain[chain.index(before) :][::-1]]
        chain.append(before)
    return chain[::-1]
