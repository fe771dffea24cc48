"""Separation makes a narrow cone uniform, and keeps more neighbourhood structure than descent alone (Eq. 4 to 6)."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from gif_core.runtime import ShardedRows
from gif_core.separation import SeparationStep, batch_gradient, neighbours_kept, separated, separation_scores
from schemas.separation import SeparationConfig

GAP = 0.01


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def clusters_in_a_cone(identities: int = 300, dimension: int = 64) -> Tensor:
    """Groups of similar identities with a falling spectrum around one direction, like CLIP's vectors of faces."""
    generator = torch.Generator().manual_seed(0)
    spread_D = torch.linspace(1, 0.02, dimension) ** 2
    centres = torch.randn(identities // 20, dimension, generator=generator) * spread_D
    own = 0.6 * torch.randn(identities, dimension, generator=generator) * spread_D
    spread = normalize(centres[torch.randint(len(centres), (identities,), generator=generator)] + own, dim=1)
    common = normalize(torch.randn(1, dimension, generator=generator), dim=1)
    return normalize(0.7**0.5 * common + 0.3**0.5 * spread, dim=1)


Run = tuple[Tensor, list[SeparationStep]]


@pytest.fixture(scope="module")
def start() -> Tensor:
    return clusters_in_a_cone()


@pytest.fixture(scope="module")
def by_default(start: Tensor) -> Run:
    return separated(start, SeparationConfig(), seed=0)


@pytest.fixture(scope="module")
def by_descent(start: Tensor) -> Run:
    return separated(start, SeparationConfig(start_gap=None, pull=0), seed=0)


@pytest.fixture(scope="module")
def by_literal_recipe(start: Tensor) -> Run:
    return separated(start, SeparationConfig(recipe="literal", epochs=1000), seed=0)


def test_the_default_reaches_the_uniform_limit_and_the_literal_recipe_does_not(
    by_default: Run, by_literal_recipe: Run
) -> None:
    assert by_default[1][0].gap > 2
    assert by_default[1][-1].gap <= GAP
    assert by_default[1][-1].epoch < 100
    assert by_literal_recipe[1][-1].epoch == 1000
    assert by_literal_recipe[1][-1].gap > 20 * GAP


def test_at_the_same_gap_the_default_keeps_twice_the_neighbours_of_descent_alone(
    start: Tensor, by_default: Run, by_descent: Run
) -> None:
    assert max(by_default[1][-1].gap, by_descent[1][-1].gap) <= GAP
    for neighbours in (10, 30):
        ours, theirs = (neighbours_kept(start, run[0], neighbours=neighbours) for run in (by_default, by_descent))
        assert ours > {10: 2.0, 30: 1.3}[neighbours] * theirs


def test_at_the_same_gap_the_default_keeps_more_of_the_order_of_similarities(by_default: Run, by_descent: Run) -> None:
    ours, theirs = (run[1][-1].spearman or 0.0 for run in (by_default, by_descent))
    assert ours > 1.2 * theirs


def test_the_default_needs_half_the_epochs_of_descent_alone(by_default: Run, by_descent: Run) -> None:
    assert by_default[1][-1].epoch <= by_descent[1][-1].epoch / 2


def test_the_minimum_distance_grows(start: Tensor, by_default: Run) -> None:
    before, after = separation_scores(start), separation_scores(by_default[0])
    assert after.min > 5 * before.min
    assert after.mean == pytest.approx(1, abs=0.01)


def test_a_step_is_the_gradient_of_equation_6(start: Tensor) -> None:
    vectors, batch = normalize(start.double(), dim=1), torch.arange(0, 300, 7)
    moving = vectors[batch].requires_grad_()
    potential = torch.exp(-2.0 * torch.cdist(moving, vectors).square())
    (potential.sum() / len(batch)).log().backward()  # type: ignore[no-untyped-call]
    assert moving.grad is not None
    radial = (moving.grad * vectors[batch]).sum(dim=1, keepdim=True)
    expected = moving.grad - radial * vectors[batch]
    actual = batch_gradient(ShardedRows(vectors), batch, 2.0, self_pairs=True, chunk=64)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-12)
