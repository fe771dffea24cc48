"""Claims about separation: the limit, the loss, its gradient, and how far a run gets."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from gif_core.runtime import ShardedRows
from gif_core.separation import (
    batch_gradient,
    bin_edges,
    mean_potential,
    measure_distances,
    neighbourhoods,
    neighbours_kept,
    separated,
    separation_scores,
    uniform_limit,
)
from gif_core.separation import descent as separation
from gif_core.separation.descent import separate
from gif_core.separation.neighbourhoods import nearest, spearman
from gif_core.separation.potential import mean_cosine
from schemas.separation import SeparationConfig

pytestmark = pytest.mark.usefixtures("one_thread")
PLAIN: dict[str, object] = {"start_gap": None, "pull": 0}
"""Descent alone."""


def sphere(count: int, dimension: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rows = torch.randn(count, dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(rows, dim=1).to(dtype)


def cone(count: int, dimension: int, cosine: float = 0.7) -> torch.Tensor:
    """Vectors around one direction with uneven spread, as CLIP gives them for faces."""
    spread = torch.nn.functional.normalize(sphere(count, dimension) * torch.linspace(1, 0.05, dimension), dim=1)
    return torch.nn.functional.normalize(
        cosine**0.5 * sphere(1, dimension, seed=1) + (1 - cosine) ** 0.5 * spread, dim=1
    )


@pytest.mark.parametrize(
    ("dimension", "limit"), [(512, -3.984375), (768, -3.989583), (256, -3.968754), (128, -3.937530)]
)
def test_uniform_limit_has_the_known_values(dimension: int, limit: float) -> None:
    assert uniform_limit(dimension, 2.0) == pytest.approx(limit, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.1, 2.0, 50.0])
def test_uniform_limit_agrees_with_elementary_integrals(temperature: float) -> None:
    circle_of_two = math.log((1 + math.exp(-4 * temperature)) / 2)
    ordinary_sphere = math.log((1 - math.exp(-4 * temperature)) / (4 * temperature))
    assert uniform_limit(1, temperature) == pytest.approx(circle_of_two, rel=1e-9)
    assert uniform_limit(3, temperature) == pytest.approx(ordinary_sphere, rel=1e-9)


def test_uniform_limit_is_finite_where_the_bessel_function_underflows() -> None:
    assert uniform_limit(100_000, 2.0) == pytest.approx(-4 + 2 * 2.0**2 / 100_000, abs=1e-7)
    assert math.isfinite(uniform_limit(512, 200.0))


def test_uniform_vectors_have_no_gap_even_when_few() -> None:
    gap = mean_potential(sphere(440, 128), 2.0) - uniform_limit(128, 2.0)
    assert abs(gap) < 0.005


@pytest.mark.parametrize("chunk", [1, 7, 30, 100])
def test_mean_potential_is_exact_for_any_chunk(chunk: int) -> None:
    vectors = sphere(30, 5, dtype=torch.float64)
    pairs = torch.pdist(vectors).square()
    assert mean_potential(vectors, 2.0, chunk) == pytest.approx(math.log(torch.exp(-2 * pairs).mean()), abs=1e-12)


def test_mean_cosine_is_that_of_all_pairs() -> None:
    vectors = cone(40, 6)
    pairs = (vectors @ vectors.T)[~torch.eye(40, dtype=torch.bool)]
    assert mean_cosine(ShardedRows(vectors)) == pytest.approx(float(pairs.mean()), abs=1e-6)


@pytest.mark.parametrize("self_pairs", [True, False])
@pytest.mark.parametrize("chunk", [4, 17, 1000])
def test_gradient_is_that_of_autograd(self_pairs: bool, chunk: int) -> None:
    vectors = sphere(50, 8, dtype=torch.float64)
    batch = torch.tensor([0, 3, 17, 41, 49])
    moving = vectors[batch].requires_grad_()
    potential = torch.exp(-2.0 * torch.cdist(moving, vectors).square())
    if not self_pairs:
        potential = potential.masked_fill(torch.arange(50) == batch[:, None], 0)
    (potential.sum() / len(batch)).log().backward()  # type: ignore[no-untyped-call]
    assert moving.grad is not None
    radial = (moving.grad * vectors[batch]).sum(dim=1, keepdim=True)
    expected = moving.grad - radial * vectors[batch]
    # Autograd descends -t|a-b|^2, whose tangent part is that of 2t a.b: same sign, same size.
    actual = batch_gradient(ShardedRows(vectors), batch, 2.0, self_pairs=self_pairs, chunk=chunk)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


def test_literal_epoch_is_one_sgd_step_of_equation_6() -> None:
    vectors = sphere(20, 6, dtype=torch.float64)
    config = SeparationConfig(recipe="literal", epochs=1, target_gap=None, learning_rate=0.1)
    after, _ = separated(vectors, config, seed=0)
    gradient = batch_gradient(ShardedRows(vectors), torch.arange(20), 2.0, self_pairs=True)
    torch.testing.assert_close(after, torch.nn.functional.normalize(vectors - 0.1 * gradient, dim=1))


@pytest.mark.parametrize(("recipe", "smallest", "largest"), [("per_vector", 0.9, 1.1), ("literal", 12, 20)])
def test_only_the_literal_step_depends_on_the_batch_size(recipe: str, smallest: float, largest: float) -> None:
    vectors = cone(2048, 32)
    lengths = []
    for batch_size in (128, 2048):
        given = {"recipe": recipe, "learning_rate": 1e-3, "batch_size": batch_size}
        after, _ = separated(vectors, SeparationConfig.model_validate(PLAIN | given | {"epochs": 1}), seed=0)
        lengths.append(float((after - vectors).norm(dim=1).mean()))
    assert smallest < lengths[0] / lengths[1] < largest


@pytest.mark.parametrize(("count", "dimension"), [(440, 128), (600, 256)])
@pytest.mark.parametrize("given", [{}, {"start_gap": None, "pull": 0}])
def test_a_narrow_cone_is_made_uniform_within_40_epochs(count: int, dimension: int, given: dict[str, object]) -> None:
    _, steps = separated(cone(count, dimension), SeparationConfig.model_validate(given), seed=0)
    assert steps[0].gap > 2.5
    assert steps[0].mean_cosine == pytest.approx(0.7, abs=0.02)
    assert steps[-1].epoch <= 40
    assert steps[-1].gap <= 0.01
    assert abs(steps[-1].mean_cosine) < 0.01
    assert steps[-2].gap > 0.01


def test_the_first_epoch_brings_the_gap_to_start_gap() -> None:
    for start_gap in (0.02, 0.06):
        config = SeparationConfig(start_gap=start_gap, epochs=1, target_gap=None)
        _, steps = separated(cone(800, 64), config, seed=0)
        assert steps[1].gap == pytest.approx(start_gap, rel=0.1)


def test_a_flat_spectrum_is_reached_at_most() -> None:
    _, steps = separated(cone(800, 64), SeparationConfig(start_gap=1e-9, epochs=1, target_gap=None), seed=0)
    assert abs(steps[1].gap) < 0.01


def test_the_pull_keeps_neighbours_and_fades() -> None:
    kept = []
    for pull in (0.0, 0.3):
        given = SeparationConfig(start_gap=None, pull=pull, epochs=40, target_gap=None)
        _, steps = separated(cone(440, 64), given, seed=0)
        kept.append(steps[-1].neighbours_kept or 0.0)
    assert kept[1] > 1.2 * kept[0]
    strong = SeparationConfig(pull=5, epochs=400, target_gap=0.01)
    _, steps = separated(cone(150, 64), strong, seed=0)
    assert steps[20].gap > 0.1
    assert steps[-1].gap <= 0.01


def test_it_stops_before_fewer_neighbours_are_kept_than_asked_for() -> None:
    config = SeparationConfig.model_validate(PLAIN | {"epochs": 100})
    _, freely = separated(cone(300, 32), config, seed=0)
    least = 0.8
    after, steps = separated(cone(300, 32), config.model_copy(update={"least_kept": least}), seed=0)
    assert freely[-1].neighbours_kept is not None
    assert freely[-1].neighbours_kept < least
    assert [step.gap for step in steps] == [step.gap for step in freely[: len(steps)]]
    kept = [step.neighbours_kept or 0.0 for step in freely[: len(steps) + 1]]
    assert min(kept[:-1]) >= least > kept[-1]
    assert neighbours_kept(cone(300, 32), after) == kept[-2]


def test_literal_recipe_is_still_far_from_uniform_after_30_epochs() -> None:
    _, steps = separated(cone(440, 128), SeparationConfig(recipe="literal", epochs=30), seed=0)
    assert steps[-1].epoch == 30
    assert steps[-1].gap > 1


def test_small_batches_reach_the_target_too() -> None:
    _, steps = separated(cone(440, 128), SeparationConfig(batch_size=50, epochs=30), seed=0)
    assert steps[-1].gap <= 0.01


def test_same_seed_same_vectors_and_another_seed_others() -> None:
    config = SeparationConfig(batch_size=16, epochs=3, target_gap=None)
    first, again, other = (separated(cone(60, 8), config, seed=seed)[0] for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_input_is_unchanged_and_the_result_lies_on_the_sphere() -> None:
    vectors = 3 * cone(60, 8)
    copy = vectors.clone()
    after, steps = separated(vectors, SeparationConfig(batch_size=16, epochs=2, target_gap=None), seed=0)
    assert [step.epoch for step in steps] == [0, 1, 2]
    assert torch.equal(vectors, copy)
    torch.testing.assert_close(after.norm(dim=1), torch.ones(60))


def test_neighbourhoods_are_measured_in_the_first_epochs_at_powers_of_two_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(separation, "ALL_MEASURED", 3)
    after, steps = separated(cone(60, 8), SeparationConfig(epochs=21, target_gap=None), seed=0)
    measured = [step.epoch for step in steps if step.neighbours_kept is not None]
    assert measured == [0, 1, 2, 3, 4, 8, 16, 21] == [step.epoch for step in steps if step.spearman is not None]
    assert (steps[0].neighbours_kept, steps[0].spearman) == (1, pytest.approx(1))
    assert steps[-1].neighbours_kept == neighbours_kept(cone(60, 8), after, seed=0)


def test_loss_of_a_sample_is_near_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separation, "MEASURED_ROWS", 1000)
    vectors = cone(3000, 64)
    first = next(separate(ShardedRows(vectors), SeparationConfig(), seed=0))
    assert first.loss == pytest.approx(mean_potential(vectors, 2.0), abs=0.02)
    assert first.loss != mean_potential(vectors, 2.0)


def test_rotation_keeps_all_neighbours_and_random_vectors_keep_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbourhoods, "SEARCH_CHUNK", 64)
    vectors = sphere(500, 16, dtype=torch.float64)
    rotation, _ = torch.linalg.qr(sphere(16, 16, seed=2, dtype=torch.float64))
    assert neighbours_kept(vectors, vectors @ rotation) == 1
    assert neighbours_kept(vectors, sphere(500, 16, seed=3, dtype=torch.float64)) < 0.06
    expected = (vectors @ vectors.T).fill_diagonal_(-2).topk(10, dim=1).indices
    assert torch.equal(nearest(ShardedRows(vectors), torch.arange(500), 10), expected)


def test_spearman_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    before, noise = rng.normal(size=(2, 500))
    assert spearman(before, before + noise) == pytest.approx(spearmanr(before, before + noise).statistic)
    assert spearman(before, -(before**3)) == pytest.approx(-1)
    assert spearman(before.round(), noise) == pytest.approx(spearmanr(before.round(), noise).statistic), "ties"
    assert spearman(np.ones(5), noise[:5]) == 1
    assert spearman(noise[:5], np.ones(5)) == 0


@pytest.mark.parametrize("block", [1, 13, 500])
def test_separation_scores_are_exact_over_all_pairs(block: int) -> None:
    vectors = sphere(70, 9, dtype=torch.float64)
    distance = 1 - (vectors @ vectors.T)[torch.ones(70, 70).triu(1).bool()]
    scores = separation_scores(5 * vectors, block)
    assert (scores.min, scores.mean, scores.max) == pytest.approx(
        (float(distance.min()), float(distance.mean()), float(distance.max())), abs=1e-9
    )


def test_distances_of_all_pairs_are_counted_in_200_bins() -> None:
    vectors = cone(90, 7).double()
    distance = 1 - (vectors @ vectors.T)[torch.ones(90, 90).triu(1).bool()]
    _, counts = measure_distances(vectors, 32)
    expected, edges = np.histogram(distance.numpy(), bins=200, range=(0, 2))
    assert counts.sum() == 90 * 89 / 2
    assert np.array_equal(counts, expected)
    assert np.allclose(edges[:-1], bin_edges())


def test_one_vector_has_nothing_to_separate() -> None:
    after, (step,) = separated(torch.tensor([[3.0, 4.0]]), SeparationConfig(), seed=0)
    assert (step.epoch, step.gap, step.mean_cosine, step.neighbours_kept, step.spearman) == (0, 0, 0, 1, 1)
    torch.testing.assert_close(after, torch.tensor([[0.6, 0.8]]))


@pytest.mark.parametrize("given", [{}, PLAIN])
def test_two_vectors_move_to_opposite_sides(given: dict[str, object]) -> None:
    config = SeparationConfig.model_validate(given | {"epochs": 200, "target_gap": None})
    after, _ = separated(cone(2, 4), config, seed=0)
    assert separation_scores(after).min == pytest.approx(2, abs=1e-3)


def test_equal_vectors_stay_finite() -> None:
    vectors = cone(40, 8)
    vectors[:20] = vectors[0]
    after, _ = separated(vectors, SeparationConfig(epochs=5), seed=0)
    assert after.isfinite().all()
    after, _ = separated(vectors[:20], SeparationConfig(epochs=5), seed=0)
    torch.testing.assert_close(after.norm(dim=1), torch.ones(20))


@pytest.mark.parametrize("temperature", [0.5, 30.0, 200.0])
def test_other_temperatures_neither_overflow_nor_stall(temperature: float) -> None:
    config = SeparationConfig.model_validate(PLAIN | {"temperature": temperature, "epochs": 3, "target_gap": None})
    after, steps = separated(cone(60, 8), config, seed=0)
    assert after.isfinite().all()
    assert steps[-1].loss < steps[0].loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_output_has_the_dtype_of_the_input(dtype: torch.dtype) -> None:
    after, _ = separated(cone(30, 8).to(dtype), SeparationConfig(epochs=2), seed=0)
    assert after.dtype == dtype


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_vector_without_direction_is_refused_by_its_number(value: float) -> None:
    vectors = cone(5, 3)
    vectors[3] = value
    with pytest.raises(ValueError, match="vector 3"):
        separated(vectors, SeparationConfig(), seed=0)


def test_no_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        separated(torch.zeros(0, 4), SeparationConfig(), seed=0)
    with pytest.raises(ValueError, match="at least 2 vectors"):
        separation_scores(torch.ones(1, 4))
