"""Claims about spherical k-means and the bounded assignment."""

import faiss
import numpy as np
import numpy.typing as npt
import pytest

from gif_core.tokenization import bounded_kmeans, kmeans, spherical_kmeans
from gif_core.tokenization.assignment import assign_bounded
from gif_core.tokenization.kmeans import mean_directions


def groups(count: int, dimension: int, num_groups: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Unit rows around a few directions."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(num_groups, dimension))
    rows = centre[rng.integers(num_groups, size=count)] + 0.3 * rng.normal(size=(count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def objective(vectors_ND: npt.NDArray[np.float32], labels_N: npt.NDArray[np.int64]) -> float:
    """The summed cosine of rows to the mean direction of their cluster."""
    return sum(float(np.linalg.norm(vectors_ND[labels_N == k].sum(axis=0))) for k in np.unique(labels_N))


def test_centroids_fit_better_than_rows_drawn_at_random() -> None:
    vectors = groups(600, 32, 5)
    centroids = spherical_kmeans(vectors, 12, iterations=20, seed=0)
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-5)
    drawn = [np.random.default_rng(seed).choice(vectors, 12, replace=False) for seed in range(20)]
    best_drawn = max((vectors @ rows.T).max(axis=1).mean() for rows in drawn)
    assert 1 - (vectors @ centroids.T).max(axis=1).mean() < 0.6 * (1 - best_drawn)


def test_centroids_are_the_mean_directions_of_the_rows_nearest_by_cosine() -> None:
    vectors = groups(400, 6, 40)
    centroids = spherical_kmeans(vectors, 6, iterations=200, seed=0)
    labels = (vectors @ centroids.T).argmax(axis=1)
    means = np.stack([vectors[labels == k].mean(axis=0) for k in range(6)])
    np.testing.assert_allclose(centroids, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-5)


def test_same_seed_same_centroids_whatever_the_threads() -> None:
    vectors = groups(3000, 32, 7)
    before = faiss.omp_get_max_threads()
    found = []
    try:
        for threads in (1, 2, 2):
            faiss.omp_set_num_threads(threads)
            found.append(spherical_kmeans(vectors, 9, iterations=5, seed=3))
    finally:
        faiss.omp_set_num_threads(before)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[1], found[2])
    assert not np.array_equal(found[0], spherical_kmeans(vectors, 9, iterations=5, seed=4))


def test_kmeans_leaves_the_number_of_threads_as_it_was() -> None:
    before = faiss.omp_get_max_threads()
    spherical_kmeans(groups(50, 4, 3), 3, iterations=2, seed=0)
    assert faiss.omp_get_max_threads() == before


def test_no_row_is_left_out_of_the_training() -> None:
    """A rare direction among more rows than faiss samples by default (256 a centroid) gets its own."""
    vectors = np.zeros((20_000, 3), dtype=np.float32)
    vectors[:, 0] = 1
    vectors[::2, :2] = (0.6, 0.8)
    vectors[12_345] = (0, 0, 1)
    gained = [(vectors[12_345] @ spherical_kmeans(vectors, 3, iterations=10, seed=seed).T).max() for seed in range(3)]
    sums = [(vectors @ spherical_kmeans(vectors, 3, iterations=10, seed=seed).T).max(axis=1).sum() for seed in range(3)]
    assert max(gained) > 0
    assert max(sums) >= 19_999


def test_as_many_clusters_as_rows_are_the_rows() -> None:
    vectors = 2 * groups(6, 4, 2)
    np.testing.assert_allclose(spherical_kmeans(vectors, 6, iterations=5, seed=0), vectors / 2, atol=1e-6)


@pytest.mark.parametrize("num_clusters", [0, 7])
def test_impossible_numbers_of_clusters_are_refused(num_clusters: int) -> None:
    with pytest.raises(ValueError, match="6 rows cannot form"):
        spherical_kmeans(groups(6, 4, 2), num_clusters, iterations=5, seed=0)


def test_not_finite_values_are_refused_by_their_row() -> None:
    vectors = groups(9, 4, 2)
    vectors[4, 1] = np.nan
    with pytest.raises(ValueError, match="row 4"):
        spherical_kmeans(vectors, 2, iterations=5, seed=0)


def test_bounded_rounds_serve_bounded_clusters_better_than_plain_centroids() -> None:
    """Over several data sets: the centroids of plain k-means, bounded afterwards, fit worse."""
    gained = []
    for seed in range(4):
        vectors = groups(1200, 32, 9, seed)
        kinds = (
            spherical_kmeans(vectors, 12, iterations=20, seed=seed),
            bounded_kmeans(vectors, 12, capacity=108, iterations=20, seed=seed),
        )
        plain, bounded = (objective(vectors, assign_bounded(vectors @ kind.T, capacity=108)) for kind in kinds)
        gained.append(bounded / plain)
    assert np.mean(gained) > 1.002


def test_bounded_rounds_are_plain_ones_when_nothing_binds() -> None:
    vectors = groups(500, 16, 5)
    plain = spherical_kmeans(vectors, 6, iterations=12, seed=0)
    bounded = bounded_kmeans(vectors, 6, capacity=500, iterations=12, seed=0)
    assert objective(vectors, (vectors @ bounded.T).argmax(axis=1)) == pytest.approx(
        objective(vectors, (vectors @ plain.T).argmax(axis=1)), rel=1e-4
    )


def test_a_cluster_without_a_direction_keeps_its_centroid() -> None:
    vectors = np.array([[1, 0], [0, 1], [0, -1]], dtype=np.float32)
    fallback = np.array([[0, 1], [1, 0], [0.6, 0.8]], dtype=np.float32)
    found = mean_directions(vectors, np.array([0, 1, 1]), fallback)
    np.testing.assert_allclose(found, [[1, 0], [1, 0], [0.6, 0.8]])


def test_several_starts_find_better_clusters_than_one_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve groups for six clusters, where a start decides which groups share one."""
    vectors = groups(3200, 16, 12)

    def reached(seed: int) -> float:
        centroids = bounded_kmeans(vectors, 6, capacity=600, iterations=20, seed=seed)
        return objective(vectors, assign_bounded(vectors @ centroids.T, capacity=600))

    several = [reached(seed) for seed in range(12)]
    monkeypatch.setattr(kmeans, "_MANY_ROWS", 10**9)
    one = [reached(seed) for seed in range(12)]
    assert np.mean(several) > np.mean(one)
