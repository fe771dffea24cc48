"""Claims about the prices at which about `capacity` rows prefer each cluster."""

import numpy as np
import numpy.typing as npt
import pytest

from gif_core.tokenization.prices import clearing_prices

CLUSTERS, ROWS = 12, 3000


def wrong_rows(similarity_KN: npt.NDArray[np.floating], price_K: npt.NDArray[np.floating], capacity: int) -> int:
    """Rows too many in any cluster, and seats left free in clusters that ask a price."""
    size_K = np.bincount((similarity_KN - price_K[:, None]).argmax(axis=0), minlength=len(price_K))
    return int(np.where(price_K > 0, np.abs(size_K - capacity), np.maximum(size_K - capacity, 0)).sum())


def grouped(groups: int, spread: float, seed: int = 0) -> npt.NDArray[np.float32]:
    """Similarities of rows in groups to clusters that are rows themselves, so that groups share few clusters."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(groups, 64))[rng.integers(groups, size=ROWS)] + spread * rng.normal(size=(ROWS, 64))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows[rng.choice(ROWS, CLUSTERS, replace=False)] @ rows.T).astype(np.float32)


@pytest.mark.parametrize("groups", [1, 3, 40])
@pytest.mark.parametrize("room", [1.0, 1.04, 1.5])
def test_prices_leave_less_than_one_row_in_a_hundred_to_the_repair(groups: int, room: float) -> None:
    similarity, capacity = grouped(groups, 0.7), int(np.ceil(room * ROWS / CLUSTERS))
    price = clearing_prices(similarity, capacity)
    assert price.min() >= 0
    assert wrong_rows(similarity, np.zeros(CLUSTERS), capacity) > ROWS / 40
    assert wrong_rows(similarity, price, capacity) < ROWS / 100


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_prices_scale_with_the_similarities(scale: float) -> None:
    similarity = grouped(3, 0.7).astype(np.float64)
    assert clearing_prices(scale * similarity, 260) == pytest.approx(scale * clearing_prices(similarity, 260), rel=1e-4)


def test_clusters_with_room_for_all_are_free() -> None:
    assert not clearing_prices(grouped(3, 0.7), ROWS).any()
    assert not clearing_prices(np.ones((CLUSTERS, ROWS)), ROWS // CLUSTERS).any()
