"""Spherical k-means, plain and with a capacity per cluster: one split of Algorithm 1.

The order in which FAISS adds depends on the number of threads, so each k-means runs on one thread: the same seed gives
the same bytes on any number of cores. Cores are kept busy by running many k-means in parallel.
"""

# Shapes: N rows, K clusters, D dimensions.

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock

import faiss
import numpy as np
import numpy.typing as npt

from gif_core.tokenization.assignment import assign_bounded, refuse_not_finite
from gif_core.tokenization.prefix_sums import unit_rows

__all__ = ["assign_bounded", "bounded_kmeans", "mean_directions", "spherical_kmeans"]

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.int64]
Centroids = npt.NDArray[np.float32]

BOUNDED_ROUNDS = 6
"""Final rounds of a bounded k-means, in which the assignment respects the capacity."""
STARTS, START_ROWS, START_ITERATIONS = 6, 128, 8
"""For many rows: number of starts that are tried, rows per cluster they are tried on, and rounds of each."""
_MANY_ROWS = 4 * START_ROWS
_GPU_WORK = 10**8
_gpu_in_use = Lock()


def spherical_kmeans(
    vectors_ND: Floats, num_clusters: int, *, iterations: int, seed: int, start_KD: Centroids | None = None
) -> Centroids:
    """Return unit centroids of cosine k-means over all unit rows, without subsampling: one split of Algorithm 1.

    It starts at rows drawn with the seed, or at `start_KD`.
    """
    vectors_ND = np.ascontiguousarray(vectors_ND, dtype=np.float32)
    num_rows, dimension = vectors_ND.shape
    if not 1 <= num_clusters <= num_rows:
        raise ValueError(f"{num_rows} rows cannot form {num_clusters} clusters")
    refuse_not_finite(vectors_ND, "vectors")
    if num_clusters == num_rows:
        return unit_rows(vectors_ND)
    on_gpu = _worth_a_gpu(num_rows * num_clusters * dimension)
    kmeans = faiss.Kmeans(
        dimension,
        num_clusters,
        niter=iterations,
        spherical=True,
        seed=int(np.random.default_rng(seed).integers(2**31)),
        min_points_per_centroid=1,
        max_points_per_centroid=num_rows,
        gpu=on_gpu,
    )
    with _one_thread(), _gpu_in_use if on_gpu else nullcontext():
        kmeans.train(vectors_ND, init_centroids=start_KD)
    return unit_rows(np.asarray(kmeans.centroids, dtype=np.float32))


def bounded_kmeans(vectors_ND: Floats, num_clusters: int, *, capacity: int, iterations: int, seed: int) -> Centroids:
    """Return unit centroids of clusters of at most `capacity` rows (the bound below Eq. 6)."""
    return bounded_clusters(vectors_ND, num_clusters, capacity=capacity, iterations=iterations, seed=seed)[0]


def bounded_clusters(
    vectors_ND: Floats, num_clusters: int, *, capacity: int, iterations: int, seed: int
) -> tuple[Centroids, Integers | None]:
    """Return unit centroids of clusters of at most `capacity` rows, and the clusters of the rows if they have settled.

    Plain k-means locates the clusters; the final rounds assign within the bound and recompute the means. When the
    bound is not active these are rounds of plain k-means. For many rows, several starts are tried on a sample first,
    because local optima differ by more than the bound costs.
    """
    vectors_ND = np.ascontiguousarray(vectors_ND, dtype=np.float32)
    rounds = min(BOUNDED_ROUNDS, iterations - 1)
    start_KD, plain = None, iterations - rounds
    if len(vectors_ND) >= _MANY_ROWS * num_clusters:
        start_KD = _choose_start(vectors_ND, num_clusters, np.random.default_rng(seed))
        # The centroids of the sample need about half as many rounds.
        plain = -(-plain // 2)
    centroids_KD = spherical_kmeans(vectors_ND, num_clusters, iterations=plain, seed=seed, start_KD=start_KD)
    before_N = None
    for _ in range(rounds):
        labels_N = assign_bounded(vectors_ND @ centroids_KD.T, capacity=capacity)
        if before_N is not None and np.array_equal(labels_N, before_N):
            return centroids_KD, labels_N
        centroids_KD, before_N = mean_directions(vectors_ND, labels_N, centroids_KD), labels_N
    return centroids_KD, None


def _choose_start(vectors_ND: Floats, num_clusters: int, rng: np.random.Generator) -> Centroids:
    """Return the best of several short k-means on a sample of the rows."""
    sample = np.sort(rng.choice(len(vectors_ND), START_ROWS * num_clusters, replace=False))
    sample_ND = vectors_ND[sample]
    tried = [
        spherical_kmeans(sample_ND, num_clusters, iterations=START_ITERATIONS, seed=int(rng.integers(2**31)))
        for _ in range(STARTS)
    ]
    return max(tried, key=lambda start_KD: float((sample_ND @ start_KD.T).max(axis=1).sum()))


def mean_directions(vectors_ND: Floats, labels_N: Integers, fallback_KD: Centroids) -> Centroids:
    """Return the direction of each cluster's mean, or the fallback where the mean has no direction."""
    member_KN = np.zeros((len(fallback_KD), len(labels_N)), dtype=np.float32)
    member_KN[labels_N, np.arange(len(labels_N))] = 1
    sum_KD = (member_KN @ vectors_ND).astype(np.float32)
    has_direction_K1 = np.linalg.norm(sum_KD, axis=1, keepdims=True) > np.finfo(np.float32).eps
    return np.where(has_direction_K1, unit_rows(sum_KD), fallback_KD)


def _worth_a_gpu(work: int) -> bool:
    """Whether FAISS can use a GPU and the problem is large enough to be worth the copy."""
    return work >= _GPU_WORK and faiss.get_num_gpus() > 0


@contextmanager
def _one_thread() -> Iterator[None]:
    """Restrict FAISS to the calling thread."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)
