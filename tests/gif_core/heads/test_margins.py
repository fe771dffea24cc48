import math

import numpy as np
import pytest
import torch

from gif_core.heads.margins import AdaptiveMargin, CombinedMargin

ANGLES = torch.linspace(0.01, math.pi - 0.01, 200, dtype=torch.float64)


@pytest.mark.parametrize(
    "margins", [(1.0, 0.5, 0.0), (1.0, 0.0, 0.4), (1.0, 0.3, 0.2), (1.35, 0.2, 0.1), (4.0, 0.0, 0.0)]
)
def test_a_margin_is_below_the_cosine_and_falls_with_the_angle(margins: tuple[float, float, float]) -> None:
    margined = CombinedMargin(*margins)(ANGLES.cos(), torch.ones(200))
    assert (margined <= ANGLES.cos() + 1e-12).all()
    assert (margined.diff() < 0).all()


@pytest.mark.parametrize("margins", [(1.0, 0.5, 0.0), (1.0, 0.0, 0.4), (1.2, 0.3, 0.1)])
def test_within_a_half_turn_a_margin_is_the_printed_formula(margins: tuple[float, float, float]) -> None:
    m1, m2, m3 = margins
    inside = ANGLES[m1 * ANGLES + m2 < math.pi]
    margined = CombinedMargin(*margins)(inside.cos(), torch.ones(len(inside)))
    expected = [math.cos(m1 * angle + m2) - m3 for angle in inside.tolist()]
    np.testing.assert_allclose(margined.numpy(), expected, atol=1e-9)


def test_a_margin_has_no_jump_where_the_angle_passes_a_half_turn() -> None:
    border = math.pi - 0.5
    angles = torch.tensor([border - 1e-6, border + 1e-6], dtype=torch.float64)
    before, after = CombinedMargin(1.0, 0.5, 0.0)(angles.cos(), torch.ones(2)).tolist()
    assert before == pytest.approx(after, abs=1e-5)


@pytest.mark.parametrize("margin", [CombinedMargin(1.0, 0.5, 0.0), CombinedMargin(2.0, 0.0, 0.0), AdaptiveMargin(0.4)])
def test_slopes_are_finite_at_the_ends(margin: CombinedMargin) -> None:
    cosines = torch.tensor([-1.0, 1.0, 1.0000001, -1.0000001], requires_grad=True)
    margin(cosines, torch.full((4,), 20.0)).sum().backward()
    assert cosines.grad is not None
    assert torch.isfinite(cosines.grad).all()


def test_margins_that_would_reward_are_refused() -> None:
    with pytest.raises(ValueError, match=r"margins \(1.0, -0.5, 0.0\): m1 must be at least 1"):
        CombinedMargin(1.0, -0.5, 0.0)


def test_adaptive_margin_is_cosfaces_for_long_features_and_arcfaces_for_short_ones() -> None:
    margin = AdaptiveMargin(0.4)
    margin.mean.fill_(20.0)
    margin.deviation.fill_(1.0)
    cosine = torch.tensor([0.3, 0.3, 0.3])
    long, usual, short = margin(cosine, torch.tensor([90.0, 20.0, 0.5])).tolist()
    assert usual == pytest.approx(0.3 - 0.4, abs=1e-5)
    assert long == pytest.approx(math.cos(math.acos(0.3) - 0.4) - 0.8, abs=1e-5)
    assert short == pytest.approx(math.cos(math.acos(0.3) + 0.4), abs=1e-5)


def test_running_metrics_move_a_hundredth_of_the_way_in_training_and_stay_in_evaluation() -> None:
    margin = AdaptiveMargin(0.4)
    norms = torch.tensor([10.0, 14.0, 500.0])
    margin.observe(norms)
    clipped = np.array([10.0, 14.0, 100.0])
    assert margin.mean.item() == pytest.approx(0.99 * 20 + 0.01 * clipped.mean(), rel=1e-6)
    assert margin.deviation.item() == pytest.approx(0.99 * 100 + 0.01 * clipped.std(ddof=1), rel=1e-6)
    before = margin.mean.item()
    margin.eval().observe(norms)
    margin.train().observe(norms[:1])
    assert margin.mean.item() == before
