"""Features of other images as negatives."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gif_core.heads.sample_negatives import SampleNegatives

DIM, SCALE, MARGIN = 6, 5.0, 0.2


def draw(images: int, seed: int) -> torch.Tensor:
    return torch.randn(images, DIM, generator=torch.Generator().manual_seed(seed)) * 3


ROWS = F.normalize(draw(10, 99), dim=1)
"""The row of each identity."""


def slow_loss(
    features: np.ndarray, labels: list[int], queue: list[tuple[np.ndarray, int]], *, positives: bool
) -> float:
    """The formula, pair by pair."""
    unit = [feature / np.linalg.norm(feature) for feature in features]
    losses = []
    for place, (z, label) in enumerate(zip(unit, labels, strict=True)):
        batch = [(other, whose) for at, (other, whose) in enumerate(zip(unit, labels, strict=True)) if at != place]
        others = batch + [(feature / np.linalg.norm(feature), whose) for feature, whose in queue]
        targets = [ROWS[label].double().numpy(), *(other for other, whose in others if positives and whose == label)]
        against = sum(math.exp(SCALE * (z @ other)) for other, whose in others if whose != label)
        losses.append(np.mean([math.log1p(against / math.exp(SCALE * (z @ p - MARGIN))) for p in targets]))
    return float(np.mean(losses))


def call(term: SampleNegatives, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = term(features, labels, ROWS[labels])
    return loss


@pytest.mark.parametrize("positives", [True, False])
def test_the_loss_is_over_other_images_in_the_batch_and_in_the_queue(positives: bool) -> None:
    term = SampleNegatives(4, DIM, scale=SCALE, margin=MARGIN, positives=positives)
    batches = [(draw(3, seed), labels) for seed, labels in enumerate(([0, 1, 1], [2, 0, 3], [1, 1, 4]))]
    seen: list[tuple[np.ndarray, int]] = []
    for features, labels in batches:
        expected = slow_loss(features.double().numpy(), labels, seen[-4:], positives=positives)
        assert call(term, features, torch.tensor(labels)).item() == pytest.approx(expected, rel=1e-5)
        seen += zip(features.double().numpy(), labels, strict=True)


def test_a_batch_of_one_identity_with_an_empty_queue_costs_nothing_and_has_a_gradient() -> None:
    features = draw(3, 0).requires_grad_()
    loss = call(SampleNegatives(8, DIM, scale=SCALE, margin=MARGIN), features, torch.tensor([5, 5, 5]))
    loss.backward()
    assert loss.item() == 0
    assert features.grad is not None
    assert torch.equal(features.grad, torch.zeros(3, DIM))


def test_gradients_reach_an_image_through_its_own_feature_only() -> None:
    term = SampleNegatives(2, DIM, scale=SCALE, margin=MARGIN)
    features = draw(2, 1).requires_grad_()
    call(term, features, torch.tensor([0, 1])).backward()
    z = F.normalize(features.detach(), dim=1)
    target = (z * ROWS[:2]).sum(dim=1)
    share = torch.sigmoid(SCALE * ((z * z.flip(0)).sum(dim=1) - target + MARGIN))
    again = features.detach().clone().requires_grad_()
    pulled = (F.normalize(again, dim=1) * (z.flip(0) - ROWS[:2])).sum(dim=1)
    (0.5 * SCALE * share * pulled).sum().backward()
    assert features.grad is not None
    torch.testing.assert_close(features.grad, again.grad)


def test_a_queue_shorter_than_a_batch_keeps_the_last_features() -> None:
    term = SampleNegatives(2, DIM, scale=SCALE, margin=MARGIN)
    call(term, draw(5, 2), torch.arange(5))
    assert sorted(term.labels_Q.tolist()) == [3, 4]


def test_the_queue_goes_on_from_a_saved_state() -> None:
    whole, first, second = (SampleNegatives(5, DIM, scale=SCALE, margin=MARGIN) for _ in range(3))
    for term in (whole, first):
        call(term, draw(3, 3), torch.arange(3))
    second.load_state_dict(first.state_dict())
    again = [
        (call(term, draw(3, 4), torch.arange(3, 6)), call(term, draw(3, 5), torch.arange(6, 9)))
        for term in (whole, second)
    ]
    assert again[0] == again[1]
