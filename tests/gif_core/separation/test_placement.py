"""New identities among fixed code vectors: where they start, and how they move apart from all others."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gif_core.runtime import ShardedRows
from gif_core.separation import (
    fit_map,
    mean_potential,
    neighbours_kept,
    place,
    separated,
    separation_scores,
    uniform_limit,
)
from gif_core.separation.descent import separate
from gif_core.separation.potential import batch_potential
from schemas.separation import SeparationConfig

KNOWN, NEW, DIM = 400, 40, 32
CONFIG = SeparationConfig(batch_size=64, target_gap=0.01)


def cone(count: int, seed: int = 0) -> NDArray[np.float32]:
    """Vectors of kinds of identities around a common mean."""
    rng = np.random.default_rng(seed)
    kinds = np.random.default_rng(9).normal(size=(20, DIM))
    rows = 4 + kinds[rng.integers(20, size=count)] + 0.5 * rng.normal(size=(count, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def added(known: NDArray[np.float32], vectors: NDArray[np.float32]) -> tuple[torch.Tensor, torch.Tensor]:
    """Code vectors of all identities before and after the new ones have moved."""
    placed = place(vectors[len(known) :], fit_map(vectors[: len(known)], known))
    start = torch.from_numpy(np.concatenate([known, placed]))
    rows = ShardedRows(start.clone())
    list(separate(rows, CONFIG, seed=0, fixed=len(known)))
    return start, rows.local


@pytest.fixture(scope="module")
def known() -> NDArray[np.float32]:
    moved, _ = separated(torch.from_numpy(cone(KNOWN)), CONFIG, seed=0)
    return moved.numpy()


def test_an_existing_linear_map_is_recovered() -> None:
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    vectors = cone(KNOWN)
    wanted = vectors[:200] @ turn
    placed = place(vectors[200:], fit_map(vectors[:200], wanted))
    cosine = (placed * (vectors[200:] @ turn)).sum(axis=1)
    assert cosine.min() > 0.98


def test_vectors_and_code_vectors_of_different_number_are_refused() -> None:
    with pytest.raises(ValueError, match="got 400 vectors but 10 code vectors"):
        fit_map(cone(KNOWN), cone(10))


def test_known_identities_stay_and_new_ones_move_apart_from_all(known: NDArray[np.float32]) -> None:
    vectors = np.concatenate([cone(KNOWN), cone(NEW, seed=1)])
    start, after = added(known, vectors)
    assert torch.equal(after[:KNOWN], start[:KNOWN])
    assert not torch.equal(after[KNOWN:], start[KNOWN:])
    limit, new = uniform_limit(DIM, 2.0), torch.arange(KNOWN, KNOWN + NEW)
    gaps = [batch_potential(ShardedRows(each), new, 2.0) - limit for each in (start, after)]
    assert gaps[1] <= CONFIG.target_gap < gaps[0]
    assert separation_scores(after).min > separation_scores(start).min
    torch.testing.assert_close(after.norm(dim=1), torch.ones(KNOWN + NEW))


def test_new_identities_keep_nearly_as_many_neighbours_as_if_all_had_moved(
    known: NDArray[np.float32],
) -> None:
    vectors = np.concatenate([cone(KNOWN), cone(NEW, seed=1)])
    _, extended = added(known, vectors)
    together, _ = separated(torch.from_numpy(vectors), CONFIG, seed=0)
    kept = [neighbours_kept(torch.from_numpy(vectors), each) for each in (extended, together)]
    assert kept[0] > 0.9 * kept[1]


def test_without_new_identities_nothing_changes(known: NDArray[np.float32]) -> None:
    rows = ShardedRows(torch.from_numpy(known).clone())
    (only,) = separate(rows, CONFIG, seed=0, fixed=KNOWN)
    assert only.epoch == 0
    assert torch.equal(rows.local, torch.from_numpy(known))


@pytest.mark.parametrize("temperature", [2.0, 30.0])
def test_the_potential_of_all_identities_as_a_batch_is_that_of_all_pairs(temperature: float) -> None:
    vectors = torch.from_numpy(cone(50)).double()
    found = batch_potential(ShardedRows(vectors), torch.arange(50), temperature)
    assert found == pytest.approx(mean_potential(vectors, temperature))
