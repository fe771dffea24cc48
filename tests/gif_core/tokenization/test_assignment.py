"""Claims about the assignment whose clusters have a capacity."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import linear_sum_assignment

from gif_core.tokenization import assignment as bounded_assignment
from gif_core.tokenization.assignment import assign_bounded


@pytest.fixture(autouse=True)
def _no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems too go through prices and repair."""
    monkeypatch.setattr(bounded_assignment, "FEW_ROWS", 0)


def optimum(similarity_NK: npt.NDArray[np.floating], capacity: int) -> float:
    """The best sum any bounded assignment has: every seat a column of its own."""
    seats = np.repeat(similarity_NK.astype(np.float64), capacity, axis=1)
    return float(seats[linear_sum_assignment(seats, maximize=True)].sum())


def total(similarity_NK: npt.NDArray[np.floating], labels_N: npt.NDArray[np.int64]) -> float:
    return float(similarity_NK[np.arange(len(labels_N)), labels_N].sum(dtype=np.float64))


def crowded(count: int, num_clusters: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Similarities of which some clusters are liked by far too many rows."""
    rng = np.random.default_rng(seed)
    return (0.3 * rng.normal(size=(count, num_clusters)) + 0.3 * rng.normal(size=num_clusters)).astype(np.float32)


@pytest.mark.parametrize(
    ("count", "num_clusters", "capacity"),
    [(300, 18, 18), (324, 18, 18), (200, 7, 30), (60, 3, 20), (40, 2, 39)],
)
@pytest.mark.parametrize("few_rows", [0, 256])
def test_bounded_assignment_is_the_optimum(
    count: int, num_clusters: int, capacity: int, few_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_assignment, "FEW_ROWS", few_rows)
    similarity = crowded(count, num_clusters)
    labels = assign_bounded(similarity, capacity=capacity)
    assert np.bincount(labels).max() <= capacity
    assert total(similarity, labels) / optimum(similarity, capacity) > 1 - 1e-6


def test_repair_alone_reaches_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_assignment, "clearing_prices", lambda similarity, _: np.zeros(len(similarity)))
    similarity = np.random.default_rng(0).normal(size=(120, 6)) + np.arange(6)
    labels = assign_bounded(similarity, capacity=21)
    assert np.bincount(labels).max() <= 21
    assert total(similarity, labels) == pytest.approx(optimum(similarity, 21), rel=1e-6)


@pytest.mark.parametrize("wrong", [0.0, 1.0, 5.0])
def test_repair_is_right_from_any_prices(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices so wrong that clusters stay empty are put right too, not only overflow."""
    rng = np.random.default_rng(1)
    monkeypatch.setattr(
        bounded_assignment, "clearing_prices", lambda similarity, _: wrong * rng.random(len(similarity))
    )
    similarity = rng.normal(size=(90, 5))
    labels = assign_bounded(similarity, capacity=22)
    assert total(similarity, labels) == pytest.approx(optimum(similarity, 22), rel=1e-6)


def test_without_overflow_every_row_gets_its_best_cluster() -> None:
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


def test_not_finite_similarities_are_refused_by_their_row() -> None:
    similarity = crowded(9, 4)
    similarity[4, 1] = np.nan
    with pytest.raises(ValueError, match="row 4"):
        assign_bounded(similarity, capacity=9)


@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e-3])
def test_near_duplicates_move_together_at_little_cost(spread: float) -> None:
    rng = np.random.default_rng(0)
    kinds, rows = rng.normal(size=(7, 12)), np.arange(1500) % 7
    similarity = kinds[rows] + spread * rng.normal(size=(1500, 12))
    labels = assign_bounded(similarity, capacity=128)
    assert np.bincount(labels).max() <= 128
    assert total(similarity, labels) > optimum(similarity, 128) * (1 - 1e-4)


def test_a_gainful_cycle_of_moves_is_taken_instead_of_the_chain() -> None:
    previous = np.array([-1, 3, 1, 2])
    assert bounded_assignment._trace(previous, 0) == [0]
    assert bounded_assignment._trace(np.array([-1, 0, 1, 2]), 3) == [0, 1, 2, 3]
    assert bounded_assignment._trace(previous, 2) == [2, 3, 1, 2]
