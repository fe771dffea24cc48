"""Losses of published heads against their equations, written out plainly in float64: values and gradients."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import SGD

from gif_core.backbones import build_network
from gif_core.heads import Head, build_head
from gif_core.heads.broadface import BroadFaceHead
from gif_core.heads.class_pool import NOBODY, ClassPool
from gif_core.heads.classifier import ClassifierHead
from gif_core.heads.dcq import DcqHead
from gif_core.heads.dul import DulHead
from gif_core.heads.f2c import F2cHead
from gif_core.heads.groupface import GroupFaceHead
from gif_core.heads.margins import CurricularMargin
from gif_core.heads.virtual_fc import VirtualFcHead, assign_anchors
from schemas.errors import GifError
from schemas.training import TrainingConfig

pytestmark = pytest.mark.usefixtures("one_thread")
IDENTITIES, DIM, BATCH = 23, 12, 8


def make_any(name: str, **settings: object) -> Head:
    config = TrainingConfig.model_validate({"head": name, **settings})
    codes, vectors = np.zeros((IDENTITIES, 1), np.int64), np.zeros((IDENTITIES, DIM), np.float32)
    return build_head(config, codes, vectors, seed=3).double()


def make_head(name: str, **settings: object) -> ClassifierHead:
    head = make_any(name, **settings)
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


def test_virtual_fc_anchors_become_the_sums_of_the_batch_and_borrowed_ones_are_given_back() -> None:
    head = make_head("virtual_fc", anchors=7, scale=16.0)
    assert isinstance(head, VirtualFcHead)
    optimizer = SGD(head.parameters(), lr=0.01)
    head.attach(optimizer)
    labels = torch.tensor([3, 10, 10, 5, 3, 17, 17, 5])  # 3, 10 and 17 share the group 3
    anchor_of = {3: 3, 5: 5, 10: 0, 17: 1}
    for seed in range(2):
        features, _ = make_batch(seed, torch.eye(IDENTITIES, DIM, dtype=torch.float64))
        before = head.weight_MD.detach().clone()
        x, w = features.clone().requires_grad_(), before.clone()
        for label, anchor in anchor_of.items():
            w[anchor] = sum(feature for feature, its in zip(features, labels, strict=True) if its == label)
        w.requires_grad_()
        anchors = torch.tensor([anchor_of[int(label)] for label in labels])
        head.begin_step(labels, seed)
        check(head, features, labels, arcface(cosines_of(x, w), anchors, 16.0), [x, w])
        torch.testing.assert_close(head.weight_MD.detach(), w.detach())
        optimizer.step()
        head.end_step()
        assert torch.equal(head.weight_MD[:2], before[:2]), "borrowed"
        assert (head.weight_MD[3:] != before[3:]).any()
        assert (head.weight_MD[[3, 5]] != w.detach()[[3, 5]]).any(dim=1).all(), "the others learn"


def test_virtual_fc_refuses_more_identities_than_anchors() -> None:
    anchors, is_borrowed = assign_anchors(np.array([0, 1, 4, 8]), 4)
    assert anchors.tolist() == [0, 1, 2, 3]
    assert is_borrowed.tolist() == [False, False, True, True]
    with pytest.raises(GifError, match=r"5 identities and virtual_fc 4 anchors: raise training.anchors"):
        assign_anchors(np.arange(5), 4)


def test_dul_is_a_margin_softmax_of_a_sample_and_a_divergence() -> None:
    head = make_head("dul", scale=16.0)
    assert isinstance(head, DulHead)
    mean, labels = make_batch(1, head.weight_MD, norm=2.0)
    generator = torch.Generator().manual_seed(2)
    log_variance = torch.randn(BATCH, DIM, generator=generator, dtype=torch.float64) - 2
    noise = torch.randn(BATCH, DIM, generator=generator, dtype=torch.float64)
    head.draw_noise = lambda like: noise  # type: ignore[method-assign]
    features = torch.cat([mean, log_variance], dim=1)
    x, w = features.clone().requires_grad_(), head.weight_MD.detach().clone().requires_grad_()
    mu, variance = x[:, :DIM], torch.exp(x[:, DIM:])
    divergence = -0.5 * (1 + variance.log() - mu**2 - variance).sum(dim=1).mean()
    expected = arcface(cosines_of(mu + noise * variance.sqrt(), w), labels, 16.0) + 0.01 * divergence
    check(head, features, labels, expected, [x, w])


def test_groupface_adds_the_cross_entropy_of_groups_that_fill_equally() -> None:
    head = make_head("groupface", scale=16.0, groups=5)
    assert isinstance(head, GroupFaceHead)
    mean = torch.full((5,), 0.2, dtype=torch.float64)
    for seed in range(3):
        features, labels = make_batch(seed, head.weight_MD)
        logits = torch.randn(BATCH, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        logits[:, 0] += 3.0  # most probable for most
        both = torch.cat([features, logits], dim=1)
        x, w = both.clone().requires_grad_(), head.weight_MD.detach().clone().requires_grad_()
        p = torch.exp(x[:, DIM:]) / torch.exp(x[:, DIM:]).sum(dim=1, keepdim=True)
        mean = 0.99 * mean + 0.01 * p.detach().mean(dim=0)
        groups = ((p.detach() - mean) / 5 + 1 / 5).argmax(dim=1)
        group_loss = -p[torch.arange(BATCH), groups].log().mean()
        expected = arcface(cosines_of(x[:, :DIM], w), labels, 16.0) + 0.1 * group_loss
        check(head, both, labels, expected, [x, w])
        torch.testing.assert_close(head.mean_K, mean)


@pytest.mark.parametrize(("name", "extra"), [("dul", DIM), ("groupface", 4)])
def test_networks_of_dul_and_groupface_give_more_in_training_and_the_feature_in_evaluation(
    name: str, extra: int
) -> None:
    torch.manual_seed(0)
    model = build_network("iresnet_tiny", DIM, head=name, groups=4)
    images = torch.randn(4, 3, 112, 112)
    assert model(images).shape == (4, DIM + extra)
    model.eval()
    feature, trunk = model(images), model.get_submodule("trunk")(images)
    assert feature.shape == (4, DIM)
    if name == "dul":
        assert torch.equal(feature, trunk[:, :DIM])
        return
    p = model.get_submodule("group_decision")(trunk).softmax(dim=1)
    layer = model.get_submodule("group_features")
    groups = [trunk @ layer.weight[k * DIM : (k + 1) * DIM].T + layer.bias[k * DIM : (k + 1) * DIM] for k in range(4)]
    expected = trunk + sum(p[:, k, None] * groups[k] for k in range(4))
    torch.testing.assert_close(feature, expected, rtol=1e-4, atol=1e-5)


def normalised(features: Tensor) -> Tensor:
    return features / features.norm(dim=1, keepdim=True)


def test_dcq_compares_queries_with_their_keys_and_a_queue_of_others() -> None:
    head = make_any("dcq", queue_size=6, scale=16.0)
    assert isinstance(head, DcqHead)
    queue: list[tuple[Tensor, int]] = []
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        queries, keys = torch.randn(2, 4, DIM, generator=generator, dtype=torch.float64)
        labels = torch.randint(0, 5, (4,), generator=generator)
        x = queries.clone().requires_grad_()
        q, k = normalised(x), normalised(keys)
        losses = []
        for row in range(4):
            own = torch.exp(16 * (q[row] @ k[row] - 0.3))
            others = [torch.exp(16 * q[row] @ key) for key, label in queue if label != labels[row]]
            losses.append(-torch.log(own / (own + sum(others))))
        expected = torch.stack(losses).mean()
        given = queries.clone().requires_grad_()
        loss = head.compare(given, keys, labels.repeat_interleave(2)).loss
        loss.backward()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
        assert given.grad is not None
        np.testing.assert_allclose(given.grad, torch.autograd.grad(expected, x)[0], rtol=1e-7, atol=1e-10)
        queue = [*queue, *zip(k, labels.tolist(), strict=True)][-6:]
    assert expected > 0.1


class SlowPool:
    """The pool of F²C as its authors describe it, one image after the other."""

    def __init__(self, slots: int) -> None:
        self.centres: dict[int, list[Tensor]] = {}
        self.turn: dict[int, int] = {}
        self.order: list[int] = []
        self.slots = slots

    def insert(self, labels: list[int], keys: Tensor) -> set[int]:
        double = set()
        for label, key in zip(labels, keys, strict=True):
            if label in self.order:
                self.centres[label][self.turn[label]] = key
                self.turn[label] = 1 - self.turn[label]
                self.order.remove(label)
                double.add(label)
            else:
                if len(self.order) == self.slots:
                    gone = next(each for each in self.order if each not in labels)
                    self.order.remove(gone)
                self.centres[label], self.turn[label] = [key, key], 1
            self.order.append(label)
        return double

    def loss(self, z: Tensor, labels: list[int], double: set[int], hardest: int) -> Tensor:
        inside, outside = [[], []], [[], []]
        for row, label in zip(z, labels, strict=True):
            for side in range(2):
                cosines = {each: row @ self.centres[each][side if each in double else 0] for each in self.order}
                if label in cosines:
                    own = torch.exp(16 * (cosines.pop(label) - 0.4))
                    inside[side].append(-torch.log(own / (own + sum(torch.exp(16 * c) for c in cosines.values()))))
                else:
                    top = sorted(cosines.values(), reverse=True)[:hardest]
                    outside[side].append(sum(c.clamp(min=0) for c in top) / hardest)
        means = [torch.stack(each).mean() for part in (inside, outside) for each in part if each]
        return sum(means, torch.zeros((), dtype=torch.float64))


def test_f2c_classifies_against_a_pool_and_pushes_hard_negatives_away() -> None:
    head = make_any("f2c", queue_size=8, scale=16.0)
    assert isinstance(head, F2cHead)
    assert head.hardest == 3
    slow, generator, inside = SlowPool(8), torch.Generator().manual_seed(0), []
    for _ in range(8):
        features, keys = torch.randn(2, 8, DIM, generator=generator, dtype=torch.float64)
        labels = torch.randint(0, 14, (8,), generator=generator)
        labels[1] = labels[0]  # a pair of one identity
        x = features.clone().requires_grad_()
        z, k = normalised(x), normalised(keys)
        firsts, seconds = labels[0::2].tolist(), labels[1::2].tolist()
        before = ({each: [*pair] for each, pair in slow.centres.items()}, dict(slow.turn), [*slow.order])
        expected = slow.loss(z[0::2], firsts, slow.insert(seconds, k[1::2]), 3)
        slow.centres, slow.turn, slow.order = before
        expected = expected + slow.loss(z[1::2], seconds, slow.insert(firsts, k[0::2]), 3)
        given = features.clone().requires_grad_()
        output = head.compare(given, keys, labels)
        output.loss.backward()
        inside.append(output.metrics["in_pool"].item())
        assert output.loss.item() == pytest.approx(expected.item(), rel=1e-10)
        assert given.grad is not None
        np.testing.assert_allclose(given.grad, torch.autograd.grad(expected, x)[0], rtol=1e-7, atol=1e-10)
        assert sorted(set(head.pool.labels_P.tolist()) - {NOBODY}) == sorted(slow.order)
    assert 0 < np.mean(inside) < 1, "some identities are in the pool and some are not"


def test_a_pool_forgets_the_least_recently_used_identity_and_can_undo() -> None:
    pool, ones = ClassPool(3, 2), torch.ones(1, 2)
    for label in (5, 6, 7, 5, 8):
        pool.insert(torch.tensor([label]), label * ones)
    assert sorted(pool.labels_P.tolist()) == [5, 7, 8]
    before = {name: tensor.clone() for name, tensor in pool.state_dict().items()}
    pool.undo(pool.insert(torch.tensor([9, 7, 9]), torch.randn(3, 2)))
    for name, tensor in pool.state_dict().items():
        kept, found = (before[name][:, :-1], tensor[:, :-1]) if name == "centres" else (before[name], tensor)
        assert torch.equal(found, kept), name


OTHERS = ("dul", "groupface", "dcq", "f2c")


def run_other(name: str, rank: int, world: int) -> dict[str, Tensor]:
    """Three steps of a network and a head that is no plain classifier; losses, network and state of the head."""
    width = {"dul": 2 * DIM, "groupface": DIM + 4}.get(name, DIM)
    torch.manual_seed(0)
    plain = torch.nn.Linear(DIM, width).double()
    average = torch.nn.Linear(DIM, width).double()
    network = torch.nn.parallel.DistributedDataParallel(plain) if world > 1 else plain
    settings = {"dcq": {"queue_size": 10}, "f2c": {"queue_size": 12}, "groupface": {"groups": 4}}
    head = make_any(name, scale=16.0, **settings.get(name, {}))
    if isinstance(head, DulHead):
        head.draw_noise = lambda like: 0.5 * torch.ones_like(like)  # type: ignore[method-assign]
    optimizer = SGD([*network.parameters(), *head.parameters()], lr=0.01)
    losses = []
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        features = torch.randn(BATCH, DIM, generator=generator, dtype=torch.float64).chunk(world)[rank]
        labels = torch.randint(0, 9, (BATCH // 2,), generator=generator).repeat_interleave(2).chunk(world)[rank]
        if isinstance(head, DcqHead):
            output = head.compare(network(features[0::2]), average(features[1::2]), labels)
        elif isinstance(head, F2cHead):
            output = head.compare(network(features), average(features), labels)
        else:
            output = head(network(features), labels)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        losses.append(output.loss.detach())
    state = {f"head.{key}": value for key, value in head.state_dict().items() if "centres" not in key}
    return {"losses": torch.stack(losses), **dict(plain.state_dict()), **state}
