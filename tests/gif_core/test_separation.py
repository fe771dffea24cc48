"""Claims about separation: the limit, the loss, its gradient, and how far a run gets."""

import math
from collections.abc import Iterator

import pytest
import torch

from gif_core import separation
from gif_core.separation import (
    batch_gradient,
    mean_cosine,
    mean_potential,
    neighbours_kept,
    separate,
    separation_scores,
    uniform_limit,
)
from schemas.separation import SeparationConfig


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These problems are small: threads would wait for each other longer than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
    assert mean_cosine(vectors) == pytest.approx(float(pairs.mean()), abs=1e-6)


@pytest.mark.parametrize("self_pairs", [True, False])
@pytest.mark.parametrize("chunk", [4, 17, 1000])
def test_gradient_is_that_of_autograd(self_pairs: bool, chunk: int) -> None:
    vectors = sphere(50, 8, dtype=torch.float64)
    batch = torch.tensor([3, 41, 0, 49, 17])
    moving = vectors[batch].requires_grad_()
    potential = torch.exp(-2.0 * torch.cdist(moving, vectors).square())
    if not self_pairs:
        potential = potential.masked_fill(torch.arange(50) == batch[:, None], 0)
    (potential.sum() / len(batch)).log().backward()  # type: ignore[no-untyped-call]
    assert moving.grad is not None
    radial = (moving.grad * vectors[batch]).sum(dim=1, keepdim=True)
    expected = moving.grad - radial * vectors[batch]
    # Autograd descends -t|a-b|^2, whose tangent part is that of 2t a.b: same sign, same size.
    actual = batch_gradient(vectors, batch, 2.0, self_pairs=self_pairs, chunk=chunk)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


def test_literal_epoch_is_one_sgd_step_of_equation_6() -> None:
    vectors = sphere(20, 6, dtype=torch.float64)
    config = SeparationConfig(recipe="literal", epochs=1, target_gap=None, learning_rate=0.1)
    *_, last = separate(vectors, config, seed=0)
    gradient = batch_gradient(vectors, torch.arange(20), 2.0, self_pairs=True)
    expected = torch.nn.functional.normalize(vectors - 0.1 * gradient, dim=1)
    torch.testing.assert_close(last.vectors_ND, expected)


@pytest.mark.parametrize(("recipe", "smallest", "largest"), [("per_vector", 0.9, 1.1), ("literal", 12, 20)])
def test_only_the_literal_step_depends_on_the_batch_size(recipe: str, smallest: float, largest: float) -> None:
    vectors = cone(2048, 32)
    lengths = []
    for batch_size in (128, 2048):
        config = SeparationConfig.model_validate(
            {"recipe": recipe, "epochs": 1, "learning_rate": 1e-3, "batch_size": batch_size}
        )
        *_, last = separate(vectors, config, seed=0)
        lengths.append(float((last.vectors_ND - vectors).norm(dim=1).mean()))
    assert smallest < lengths[0] / lengths[1] < largest


@pytest.mark.parametrize(("count", "dimension"), [(440, 128), (1200, 256)])
def test_default_recipe_makes_a_narrow_cone_uniform_within_30_epochs(count: int, dimension: int) -> None:
    steps = list(separate(cone(count, dimension), SeparationConfig(), seed=0))
    assert steps[0].gap > 2.5
    assert steps[0].mean_cosine == pytest.approx(0.7, abs=0.02)
    assert steps[-1].epoch <= 30
    assert steps[-1].gap <= 0.01
    assert abs(steps[-1].mean_cosine) < 0.01
    assert steps[-2].gap > 0.01


def test_literal_recipe_is_still_far_from_uniform_after_30_epochs() -> None:
    *_, last = separate(cone(440, 128), SeparationConfig(recipe="literal", epochs=30), seed=0)
    assert last.epoch == 30
    assert last.gap > 1


def test_small_batches_reach_the_target_too() -> None:
    *_, last = separate(cone(440, 128), SeparationConfig(batch_size=50, epochs=30), seed=0)
    assert last.gap <= 0.01


def test_same_seed_same_vectors_and_another_seed_others() -> None:
    config = SeparationConfig(batch_size=16, epochs=3, target_gap=None)
    first, again, other = (list(separate(cone(60, 8), config, seed=seed))[-1] for seed in (5, 5, 6))
    assert torch.equal(first.vectors_ND, again.vectors_ND)
    assert not torch.equal(first.vectors_ND, other.vectors_ND)


def test_each_step_owns_its_vectors_and_the_input_is_left_alone() -> None:
    vectors = 3 * cone(60, 8)
    copy = vectors.clone()
    steps = list(separate(vectors, SeparationConfig(batch_size=16, epochs=2, target_gap=None), seed=0))
    assert [step.epoch for step in steps] == [0, 1, 2]
    torch.testing.assert_close(steps[0].vectors_ND, cone(60, 8))
    assert not torch.equal(steps[1].vectors_ND, steps[2].vectors_ND)
    assert torch.equal(vectors, copy)
    for step in steps:
        torch.testing.assert_close(step.vectors_ND.norm(dim=1), torch.ones(60))


def test_neighbours_are_measured_at_powers_of_two_and_at_the_end() -> None:
    steps = list(separate(cone(60, 8), SeparationConfig(epochs=11, target_gap=None), seed=0))
    measured = [step.epoch for step in steps if step.neighbours_kept is not None]
    assert measured == [0, 1, 2, 4, 8, 11]
    assert steps[0].neighbours_kept == 1
    assert steps[-1].neighbours_kept == neighbours_kept(steps[0].vectors_ND, steps[-1].vectors_ND, seed=0)


def test_loss_of_a_sample_is_near_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separation, "MEASURED_ROWS", 1000)
    vectors = cone(3000, 64)
    first = next(separate(vectors, SeparationConfig(), seed=0))
    assert first.loss == pytest.approx(mean_potential(vectors, 2.0), abs=0.02)
    assert first.loss != mean_potential(vectors, 2.0)


def test_rotation_keeps_all_neighbours_and_chance_keeps_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separation, "CHUNK", 64)
    vectors = sphere(500, 16, dtype=torch.float64)
    rotation, _ = torch.linalg.qr(sphere(16, 16, seed=2, dtype=torch.float64))
    assert neighbours_kept(vectors, vectors @ rotation) == 1
    assert neighbours_kept(vectors, sphere(500, 16, seed=3, dtype=torch.float64)) < 0.06
    nearest = (vectors @ vectors.T).fill_diagonal_(-2).topk(10, dim=1).indices
    found = separation._nearest(vectors, torch.arange(500), 10)
    assert torch.equal(found.sort(dim=1).values, nearest.sort(dim=1).values)


@pytest.mark.parametrize("chunk", [1, 13, 500])
def test_separation_scores_are_exact_over_all_pairs(chunk: int) -> None:
    vectors = sphere(70, 9, dtype=torch.float64)
    distance = 1 - (vectors @ vectors.T)[torch.ones(70, 70).triu(1).bool()]
    scores = separation_scores(5 * vectors, chunk)
    assert (scores.min, scores.mean, scores.max) == pytest.approx(
        (float(distance.min()), float(distance.mean()), float(distance.max())), abs=1e-9
    )


def test_one_vector_has_nothing_to_separate() -> None:
    (step,) = separate(torch.tensor([[3.0, 4.0]]), SeparationConfig(), seed=0)
    assert (step.epoch, step.gap, step.mean_cosine, step.neighbours_kept) == (0, 0, 0, 1)
    torch.testing.assert_close(step.vectors_ND, torch.tensor([[0.6, 0.8]]))


def test_two_vectors_part() -> None:
    *_, last = separate(cone(2, 4), SeparationConfig(epochs=200, target_gap=None), seed=0)
    assert separation_scores(last.vectors_ND).min == pytest.approx(2, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_output_has_the_dtype_of_the_input(dtype: torch.dtype) -> None:
    *_, last = separate(cone(30, 8).to(dtype), SeparationConfig(epochs=2), seed=0)
    assert last.vectors_ND.dtype == dtype


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_vector_without_direction_is_refused_by_its_number(value: float) -> None:
    vectors = cone(5, 3)
    vectors[3] = value
    with pytest.raises(ValueError, match="vector 3"):
        next(separate(vectors, SeparationConfig(), seed=0))


def test_no_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        next(separate(torch.zeros(0, 4), SeparationConfig(), seed=0))
    with pytest.raises(ValueError, match="no pair"):
        separation_scores(torch.ones(1, 4))
