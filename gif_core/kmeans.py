"""Spherical k-means and an assignment whose clusters have a capacity (the bound below Eq. 6).

Shapes: N rows, K clusters, D dimensions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import faiss
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.int64]

SWEEPS = 50
"""Rounds of price changes at the most; what they leave is repaired exactly."""
_TIE_BREAK = 1e-8
_THREADED_WORK = 10**9
_FEW_ROWS, _STRIDE = 4096, 7
_ROUNDING = 1e-12


def spherical_kmeans(vectors_ND: Floats, num_clusters: int, *, iterations: int, seed: int) -> npt.NDArray[np.float32]:
    """Unit centroids of cosine k-means over all unit rows, no subsample: one split of Algorithm 1."""
    vectors_ND = np.ascontiguousarray(vectors_ND, dtype=np.float32)
    num_rows, dimension = vectors_ND.shape
    if not 1 <= num_clusters <= num_rows:
        raise ValueError(f"{num_rows} rows cannot make {num_clusters} clusters")
    _refuse_not_finite(vectors_ND, "vectors")
    if num_clusters == num_rows:
        return _unit(vectors_ND)
    kmeans = faiss.Kmeans(
        dimension,
        num_clusters,
        niter=iterations,
        spherical=True,
        seed=int(np.random.default_rng(seed).integers(2**31)),
        min_points_per_centroid=1,
        max_points_per_centroid=num_rows,
    )
    with _fitting_threads(num_rows * num_clusters * dimension):
        kmeans.train(vectors_ND)
    centroids_KD: npt.NDArray[np.float32] = np.asarray(kmeans.centroids, dtype=np.float32)
    return _unit(centroids_KD)


def assign_bounded(similarity_NK: Floats, *, capacity: int) -> Integers:
    """Give each row its best cluster with no cluster above `capacity` (the bound below Eq. 6).

    Maximises the summed similarity: prices (the dual) settle nearly everybody, the cheapest chains of moves
    settle the rest, so the result is the optimum up to a tie-break of 1e-8 of the largest similarity.
    """
    num_rows, num_clusters = similarity_NK.shape
    if num_clusters * capacity < num_rows:
        raise ValueError(f"{num_clusters} clusters of {capacity} seats cannot hold {num_rows} identities")
    _refuse_not_finite(similarity_NK, "similarities")
    if not num_rows:
        return np.zeros(0, dtype=np.int64)
    # Equal rows would all follow the same price: a fixed hair of difference lets prices part them.
    hair_KN = np.random.default_rng(0).random((num_clusters, num_rows))
    similarity_KN = np.asarray(similarity_NK, dtype=np.float64).T / max(float(np.abs(similarity_NK).max()), 1e-300)
    similarity_KN = similarity_KN + _TIE_BREAK * hair_KN
    price_K = _settle_prices(similarity_KN, capacity)
    # Whatever the prices, these labels are optimal for the cluster sizes they give: what the repair needs.
    return _repair(similarity_KN, (similarity_KN - price_K[:, None]).argmax(axis=0), capacity)


def _settle_prices(similarity_KN: Floats, capacity: int) -> Floats:
    """Prices at which hardly anybody prefers an overfull cluster: coordinate descent on the dual.

    The price of one cluster, the others fixed, is where exactly `capacity` rows still prefer it, and 0 when
    fewer do. Many rows start from the prices of a few of them, where a sweep costs little.
    """
    num_clusters, num_rows = similarity_KN.shape
    price_K: Floats = np.zeros(num_clusters)
    if num_rows > _FEW_ROWS:
        some_KN = np.ascontiguousarray(similarity_KN[:, ::_STRIDE])
        price_K = _settle_prices(some_KN, -(-capacity * some_KN.shape[1] // num_rows))
    for _ in range(SWEEPS):
        value_KN = similarity_KN - price_K[:, None]
        size_K = np.bincount(value_KN.argmax(axis=0), minlength=num_clusters)
        # A seat too few is wrong anywhere, a seat left empty only where it has a price.
        wrong_K = np.where(price_K > 0, np.abs(size_K - capacity), np.maximum(size_K - capacity, 0))
        if wrong_K.sum() <= num_clusters:
            break
        later_KN = np.maximum.accumulate(value_KN[::-1], axis=0)[::-1]
        earlier_N = np.full(num_rows, -np.inf)
        for k in range(num_clusters):
            rival_N = np.maximum(earlier_N, later_KN[k + 1]) if k + 1 < num_clusters else earlier_N
            price_K[k] = _clearing_price(similarity_KN[k] - rival_N, capacity)
            earlier_N = np.maximum(earlier_N, similarity_KN[k] - price_K[k])
    return price_K


def _clearing_price(margin_N: Floats, capacity: int) -> float:
    """The price between the last row that keeps its seat and the first that gives it up, never below 0."""
    num_rows = len(margin_N)
    if num_rows <= capacity:
        return 0.0
    cut = num_rows - capacity
    ranked_N = np.partition(margin_N, (cut - 1, cut))
    return max(0.0, float(ranked_N[cut - 1] + ranked_N[cut]) / 2)


def _repair(similarity_KN: Floats, labels_N: Integers, capacity: int) -> Integers:
    """Move rows along the cheapest chains of clusters until nobody overflows and no chain gains anything.

    Successive shortest paths of minimum-cost flow, over the K clusters: exact.
    """
    num_clusters = len(similarity_KN)
    labels_N = labels_N.copy()
    size_K = np.bincount(labels_N, minlength=num_clusters)
    cost_KK = np.full((num_clusters, num_clusters), np.inf)
    mover_KK = np.zeros((num_clusters, num_clusters), dtype=np.int64)
    stale = set(range(num_clusters))
    while True:
        for k in stale:
            cost_KK[k], mover_KK[k] = _cheapest_leavers(similarity_KN, labels_N, k)
        overfull_K = size_K > capacity
        sources_K = overfull_K if overfull_K.any() else size_K > 0
        distance_K, previous_K = _shortest_chains(cost_KK, sources_K)
        distance_K[size_K >= capacity] = np.inf
        here = int(distance_K.argmin())
        if not overfull_K.any() and not distance_K[here] < -_ROUNDING:
            return labels_N
        stale = {here}
        size_K[here] += 1
        while (before := int(previous_K[here])) >= 0:
            labels_N[mover_KK[before, here]] = here
            here = before
            stale.add(here)
        size_K[here] -= 1


def _cheapest_leavers(similarity_KN: Floats, labels_N: Integers, k: int) -> tuple[Floats, Integers]:
    """What it costs at least to move a row of cluster k to each cluster, and which row that is."""
    rows = np.flatnonzero(labels_N == k)
    if not len(rows):
        return np.full(len(similarity_KN), np.inf), np.zeros(len(similarity_KN), dtype=np.int64)
    loss_KR = similarity_KN[k, rows] - similarity_KN[:, rows]
    first_K = loss_KR.argmin(axis=1)
    cost_K = loss_KR[np.arange(len(similarity_KN)), first_K]
    cost_K[k] = np.inf
    return cost_K, rows[first_K]


def _shortest_chains(cost_KK: Floats, sources_K: npt.NDArray[np.bool_]) -> tuple[Floats, Integers]:
    """Bellman-Ford from all sources at once: the cost to reach each cluster and the cluster before it."""
    distance_K = np.where(sources_K, 0.0, np.inf)
    previous_K = np.full(len(cost_KK), -1, dtype=np.int64)
    for _ in range(len(cost_KK)):
        through_KK = distance_K[:, None] + cost_KK
        best_K = through_KK.argmin(axis=0)
        reached_K = through_KK[best_K, np.arange(len(cost_KK))]
        better_K = reached_K < distance_K - _ROUNDING
        if not better_K.any():
            break
        distance_K[better_K] = reached_K[better_K]
        previous_K[better_K] = best_K[better_K]
    return distance_K, previous_K


@contextmanager
def _fitting_threads(work: int) -> Iterator[None]:
    """One thread for a small problem, where waiting for the others takes longer than the work."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads if work >= _THREADED_WORK else 1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def _unit(vectors_ND: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    norm_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    unit_ND: npt.NDArray[np.float32] = vectors_ND / np.maximum(norm_N1, np.finfo(np.float32).tiny)
    return unit_ND


def _refuse_not_finite(values: Floats, name: str) -> None:
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        raise ValueError(f"the {name} of row {int(bad.argmax())} are not finite")
