"""Claims about spherical k-means and the bounded assignment."""

import faiss
import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import linear_sum_assignment

from gif_core import kmeans
from gif_core.kmeans import assign_bounded, spherical_kmeans


def groups(count: int, dimension: int, num_groups: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Unit rows around a few directions."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(num_groups, dimension))
    rows = centre[rng.integers(num_groups, size=count)] + 0.3 * rng.normal(size=(count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def optimum(similarity_NK: npt.NDArray[np.floating], capacity: int) -> float:
    """The best sum any bounded assignment has: every seat a column of its own."""
    seats = np.repeat(similarity_NK.astype(np.float64), capacity, axis=1)
    return float(seats[linear_sum_assignment(seats, maximize=True)].sum())


def total(similarity_NK: npt.NDArray[np.floating], labels_N: npt.NDArray[np.int64]) -> float:
    return float(similarity_NK[np.arange(len(labels_N)), labels_N].sum(dtype=np.float64))


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


def test_same_seed_same_centroids_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmeans, "_THREADED_WORK", 0)
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


def test_small_problems_leave_the_number_of_threads_as_it_was() -> None:
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
    with pytest.raises(ValueError, match="6 rows cannot make"):
        spherical_kmeans(groups(6, 4, 2), num_clusters, iterations=5, seed=0)


def test_not_finite_values_are_refused_by_their_row() -> None:
    vectors = groups(9, 4, 2)
    vectors[4, 1] = np.nan
    with pytest.raises(ValueError, match="row 4"):
        spherical_kmeans(vectors, 2, iterations=5, seed=0)
    with pytest.raises(ValueError, match="row 4"):
        assign_bounded(vectors, capacity=9)


@pytest.mark.parametrize(
    ("count", "num_clusters", "capacity"),
    [(300, 18, 18), (324, 18, 18), (200, 7, 30), (60, 3, 20), (40, 2, 39)],
)
@pytest.mark.parametrize("few_rows", [30, 4096])
def test_bounded_assignment_is_the_optimum(
    count: int, num_clusters: int, capacity: int, few_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmeans, "_FEW_ROWS", few_rows)
    vectors = groups(count, 16, 4)
    similarity = vectors @ spherical_kmeans(vectors, num_clusters, iterations=10, seed=0).T
    labels = assign_bounded(similarity, capacity=capacity)
    assert np.bincount(labels).max() <= capacity
    assert total(similarity, labels) / optimum(similarity, capacity) > 1 - 1e-6


def test_repair_alone_reaches_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmeans, "SWEEPS", 0)
    similarity = np.random.default_rng(0).normal(size=(120, 6)) + np.arange(6)
    labels = assign_bounded(similarity, capacity=21)
    assert np.bincount(labels).max() <= 21
    assert total(similarity, labels) == pytest.approx(optimum(similarity, 21), rel=1e-6)


@pytest.mark.parametrize("wrong", [0.0, 1.0, 5.0])
def test_repair_is_right_from_any_prices(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices so wrong that clusters stay empty are put right too, not only overflow."""
    rng = np.random.default_rng(1)
    monkeypatch.setattr(kmeans, "_settle_prices", lambda similarity, _: wrong * rng.random(len(similarity)))
    similarity = rng.normal(size=(90, 5))
    labels = assign_bounded(similarity, capacity=22)
    assert total(similarity, labels) == pytest.approx(optimum(similarity, 22), rel=1e-6)


def test_without_need_everybody_gets_the_best_cluster() -> None:
    similarity = np.random.default_rng(0).normal(size=(50, 4))
    assert np.array_equal(assign_bounded(similarity, capacity=50), similarity.argmax(axis=1))


@pytest.mark.parametrize("kind", ["equal", "duplicates", "ties", "one wish"])
@pytest.mark.parametrize(("count", "num_clusters", "capacity"), [(60, 6, 10), (55, 6, 10), (7, 7, 1), (1, 3, 1)])
def test_no_cluster_is_above_capacity_for_degenerate_rows(
    kind: str, count: int, num_clusters: int, capacity: int
) -> None:
    rng = np.random.default_rng(0)
    similarity = {
        "equal": np.ones((count, num_clusters)),
        "duplicates": rng.normal(size=(3, num_clusters))[rng.integers(3, size=count)],
        "ties": rng.integers(2, size=(count, num_clusters)).astype(np.float64),
        "one wish": np.tile(np.arange(num_clusters)[::-1] == 2, (count, 1)).astype(np.float64),
    }[kind]
    labels = assign_bounded(similarity, capacity=capacity)
    assert labels.shape == (count,)
    assert np.bincount(labels, minlength=num_clusters).max() <= capacity
    assert total(similarity, labels) == pytest.approx(optimum(similarity, capacity), abs=1e-5)


def test_too_few_seats_are_refused() -> None:
    with pytest.raises(ValueError, match="3 clusters of 2 seats cannot hold 7 identities"):
        assign_bounded(np.ones((7, 3)), capacity=2)
