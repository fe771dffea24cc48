"""Losses of published heads against their equations, written out plainly in float64: values and gradients."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import SGD

from gif_core.heads import build_head
from gif_core.heads.broadface import BroadFaceHead
from gif_core.heads.classifier import ClassifierHead
from gif_core.heads.margins import CurricularMargin
from schemas.training import TrainingConfig

pytestmark = pytest.mark.usefixtures("one_thread")
IDENTITIES, DIM, BATCH = 23, 12, 8


def make_head(name: str, **settings: object) -> ClassifierHead:
    config = TrainingConfig.model_validate({"head": name, **settings})
    codes, vectors = np.zeros((IDENTITIES, 1), np.int64), np.zeros((IDENTITIES, DIM), np.float32)
    head = build_head(config, codes, vectors, seed=3).double()
    assert isinstance(head, ClassifierHead)
    return head


def make_batch(seed: int, near: Tensor, norm: float = 30.0) -> tuple[Tensor, Tensor]:
    """Features of norms around `norm`, from far from their own rows to close to them."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, IDENTITIES, (BATCH,), generator=generator)
    noise = torch.randn(BATCH, DIM, generator=generator, dtype=torch.float64)
    features = F.normalize(noise) + torch.linspace(-0.6, 1.5, BATCH)[:, None] * F.normalize(near.detach()[labels])
    return norm * torch.linspace(0.2, 5, BATCH)[:, None] * F.normalize(features), labels


def check(head: ClassifierHead, features: Tensor, labels: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    """The head's loss and its gradients by features and rows are those of `expected` by `inputs`."""
    given = features.clone().requires_grad_()
    head.zero_grad()
    loss = head(given, labels).loss
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    assert given.grad is not None
    assert head.weight_MD.grad is not None
    gradients = torch.autograd.grad(expected, inputs, retain_graph=True)
    for found, gradient in zip((given.grad, head.weight_MD.grad), gradients, strict=True):
        assert gradient.abs().max() > 1e-6
        np.testing.assert_allclose(found.numpy(), gradient.numpy(), rtol=1e-7, atol=1e-10)


def cosines_of(features: Tensor, weight: Tensor) -> Tensor:
    return (features / features.norm(dim=1, keepdim=True)) @ (weight / weight.norm(dim=1, keepdim=True)).T


def test_curricularface_reweighs_hard_negatives_with_the_running_mean_cosine() -> None:
    head, t = make_head("curricularface", scale=16.0), 0.0
    margin = head.margin
    assert isinstance(margin, CurricularMargin)
    for seed in range(3):
        features, labels = make_batch(seed, head.weight_MD)
        x, w = features.clone().requires_grad_(), head.weight_MD.detach().clone().requires_grad_()
        cosines, rows = cosines_of(x, w), torch.arange(BATCH)
        own = cosines[rows, labels]
        t = 0.99 * t + 0.01 * own.mean().item()
        with_margin = own * math.cos(0.5) - (1 - own.square()).sqrt() * math.sin(0.5)
        hard = cosines > with_margin[:, None]
        logits = torch.where(hard, cosines * (t + cosines), cosines)
        logits[rows, labels] = with_margin
        others = hard.clone()
        others[rows, labels] = False
        assert 0 < others.sum() < others.numel() - BATCH, "some negatives are hard and some are not"
        check(head, features, labels, F.cross_entropy(16 * logits, labels), [x, w])
        assert margin.progress.item() == pytest.approx(t)
    head.eval()
    head(*make_batch(9, head.weight_MD))
    assert margin.progress.item() == pytest.approx(t), "evaluation does not move it"


def test_magface_margin_and_penalty_follow_the_norm_and_give_it_a_gradient() -> None:
    head = make_head("magface", scale=16.0)
    features, labels = make_batch(1, head.weight_MD)
    x, w = features.clone().requires_grad_(), head.weight_MD.detach().clone().requires_grad_()
    cosines, rows, norms = cosines_of(x, w), torch.arange(BATCH), x.norm(dim=1)
    assert norms.min() < 10 < 110 < norms.max()
    a = norms.clamp(10, 110)
    own, m = cosines[rows, labels], 0.45 + (0.8 - 0.45) / (110 - 10) * (a - 10)
    assert own.min() < 0 < own.max()
    logits = cosines.clone()
    logits[rows, labels] = torch.where(own > 0, own * m.cos() - (1 - own.square()).sqrt() * m.sin(), own)
    expected = F.cross_entropy(16 * logits, labels) + 35 * (a / 110**2 + 1 / a).mean()
    check(head, features, labels, expected, [x, w])
    along = (torch.autograd.grad(expected, x)[0] * features).sum(dim=1)
    assert (along.abs() > 1e-3).any(), "features learn their length"


def test_a_magface_penalty_without_a_best_length_is_refused() -> None:
    least = 64 * (0.8 - 0.45) / (110 - 10) * 110**2 * 10**2 / (110**2 - 10**2)
    assert least == pytest.approx(22.587, abs=1e-3)
    with pytest.raises(ValueError, match=r"set at least 22.59 for a scale of 64"):
        TrainingConfig(head="magface", norm_weight=20)


def arcface(cosines: Tensor, labels: Tensor, scale: float) -> Tensor:
    rows = torch.arange(len(labels))
    logits = cosines.clone()
    logits[rows, labels] = torch.cos(torch.acos(cosines[rows, labels]) + 0.5)
    return F.cross_entropy(scale * logits, labels)


@pytest.mark.parametrize("logits_at_a_time", [2**26, 3 * IDENTITIES])
def test_broadface_rows_learn_from_compensated_features_of_a_queue(
    monkeypatch: pytest.MonkeyPatch, logits_at_a_time: int
) -> None:
    monkeypatch.setattr("gif_core.heads.broadface.LOGITS", logits_at_a_time)
    head = make_head("broadface", scale=16.0, queue_size=12)
    assert isinstance(head, BroadFaceHead)
    optimizer = SGD(head.parameters(), lr=1e-4)
    queue: list[tuple[Tensor, int, Tensor]] = []
    for seed in range(4):
        features, labels = make_batch(seed, head.weight_MD)
        x, w = features.clone().requires_grad_(), head.weight_MD.detach().clone().requires_grad_()
        moved = [z + z.norm() / old.norm() * (w.detach()[y] - old) for z, y, old in queue]
        everything = torch.stack([*moved, *features])
        everybody = torch.cat([torch.tensor([y for _, y, _ in queue], dtype=torch.int64), labels])
        batch_loss = arcface(cosines_of(x, w.detach()), labels, 16.0)
        expected = batch_loss + arcface(cosines_of(everything, w), everybody, 16.0)
        check(head, features, labels, expected, [x, w])
        queue = [*queue, *((z, int(y), w.detach()[y]) for z, y in zip(features, labels, strict=True))][-12:]
        optimizer.step()
    assert sorted(head.queue.labels_Q.tolist()) == sorted(y for _, y, _ in queue)


@pytest.mark.parametrize("name", ["arcface", "cosface", "combined_margin", "adaface", "curricularface", "magface"])
def test_any_margin_works_on_a_sample_of_the_rows(name: str) -> None:
    """A rate just below 1 lends and takes back all rows; a lower one leaves rows out of the loss."""
    whole = make_head(name)
    assert not whole.samples
    features, labels = make_batch(1, whole.weight_MD)
    losses = [whole(features, labels).loss.item()]
    for rate in (0.999, 0.5):
        head = make_head(name, sample_rate=rate)
        head.attach(SGD(head.parameters(), lr=0.1, momentum=0.9))
        head.begin_step(labels, 0)
        losses.append(head(features, labels).loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert losses[2] < losses[0]


def test_heads_that_need_all_rows_refuse_a_sample() -> None:
    with pytest.raises(ValueError, match=r"broadface cannot sample rows: remove training.sample_rate"):
        TrainingConfig(head="broadface", sample_rate=0.3)


@pytest.mark.parametrize("name", ["cosface", "curricularface"])
def test_interclass_filter_counts_rows_of_the_same_person_as_orthogonal(name: str) -> None:
    head = make_head(name, scale=16.0, interclass_filter=0.4)
    features, labels = make_batch(1, head.weight_MD)
    x, w = features.clone().requires_grad_(), head.weight_MD.detach().clone().requires_grad_()
    cosines, rows = cosines_of(x, w), torch.arange(BATCH)
    own = cosines[rows, labels]
    if name == "cosface":
        target, logits = own - 0.4, cosines
    else:
        target = own * math.cos(0.5) - (1 - own.square()).sqrt() * math.sin(0.5)
        t = 0.01 * own.mean().item()
        logits = torch.where(cosines > target[:, None], cosines * (t + cosines), cosines)
    filtered = cosines.detach() > 0.4
    filtered[rows, labels] = False
    assert filtered.sum() > 2
    logits = torch.where(filtered, 0.0, logits)
    logits[rows, labels] = target
    check(head, features, labels, F.cross_entropy(16 * logits, labels), [x, w])


def test_interclass_filter_saves_a_classifier_from_identities_that_are_there_twice() -> None:
    """Each of 10 identities has a second label with the same row: unfiltered, images cannot tell the two apart."""
    losses = []
    for given in (0.5, None):
        head = make_head("cosface", interclass_filter=given)
        head.weight_MD.data[:20] = F.normalize(torch.eye(DIM, dtype=torch.float64))[:10].repeat(2, 1)
        head.weight_MD.data[20:] = torch.eye(DIM, dtype=torch.float64)[[10, 11, 11]]
        losses.append(head(head.weight_MD.detach()[:10], torch.arange(10)).loss.item())
    assert losses[0] < 1e-3
    assert losses[1] > 25
