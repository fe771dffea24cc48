"""Heads with a row for each identity: the loss as printed, sampling of rows, and several processes."""

import copy
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

from gif_core.heads import build_head
from gif_core.heads.classifier import ClassifierHead, initial_rows
from gif_core.heads.margins import AdaptiveMargin, CombinedMargin
from gif_core.heads.row_sampling import draw_rows
from schemas.training import TrainingConfig
from tests.gif_core.heads.test_rivals import OTHERS, run_other

pytestmark = pytest.mark.usefixtures("one_thread")
PROJECT = Path(__file__).parents[3]
IDENTITIES, DIM, BATCH, SCALE = 23, 12, 8, 16.0
HEADS = ("arcface", "cosface", "combined_margin", "adaface", "partial_fc")


def make_batch(seed: int = 1, size: int = BATCH) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(size, DIM, generator=generator) * torch.linspace(1, 20, size)[:, None]
    return features, torch.randint(0, IDENTITIES, (size,), generator=generator)


def make_head(name: str = "arcface", **settings: object) -> ClassifierHead:
    config = TrainingConfig.model_validate({"head": name, "scale": SCALE, **settings})
    head = build_head(config, np.zeros((IDENTITIES, 1), np.int64), np.zeros((IDENTITIES, DIM), np.float32), seed=3)
    assert isinstance(head, ClassifierHead)
    return head


def make_optimizer(head: ClassifierHead, name: str) -> Optimizer:
    if name == "adamw":
        return AdamW(head.parameters(), lr=0.01, weight_decay=0.1)
    return SGD(head.parameters(), lr=0.5, momentum=0.9, weight_decay=0.01)


def take_steps(head: ClassifierHead, optimizer: Optimizer, steps: int, first: int = 0) -> list[float]:
    losses = []
    for step in range(first, first + steps):
        features, labels = make_batch(seed=step)
        head.begin_step(labels, step)
        optimizer.zero_grad()
        loss = head(features, labels).loss
        loss.backward()
        optimizer.step()
        head.end_step()
        losses.append(loss.item())
    return losses


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / math.sqrt(sum(x * x for x in vector))


def slow_margin(name: str, cosine: float, norm: float, norms: np.ndarray) -> float:
    if name == "arcface":
        return math.cos(math.acos(cosine) + 0.5)
    if name in ("cosface", "partial_fc"):
        return cosine - 0.4
    if name == "combined_margin":
        return math.cos(1.1 * math.acos(cosine) + 0.2) - 0.1
    norms = np.clip(norms, 1e-3, 100)
    mean, deviation = 0.99 * 20 + 0.01 * norms.mean(), 0.99 * 100 + 0.01 * norms.std(ddof=1)
    place = min(max(0.333 * (min(norm, 100) - mean) / (deviation + 1e-3), -1), 1)
    return math.cos(math.acos(cosine) - 0.4 * place) - 0.4 * (1 + place)


def slow_loss(name: str, weight: np.ndarray, features: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """Eq. 1 image by image; with the share of right answers and the mean cosine to the right row."""
    norms = np.array([math.sqrt(row @ row) for row in features])
    loss = right = own = 0.0
    for row, label, norm in zip(features, labels, norms, strict=True):
        cosines = [float(unit(row) @ unit(other)) for other in weight]
        own += cosines[label] / len(labels)
        right += (np.argmax(cosines) == label) / len(labels)
        cosines[label] = slow_margin(name, cosines[label], norm, norms)
        exponentials = [math.exp(SCALE * cosine) for cosine in cosines]
        loss -= math.log(exponentials[label] / sum(exponentials)) / len(labels)
    return loss, right, own


def settings_of(name: str) -> dict[str, object]:
    return {"combined_margin": {"margins": (1.1, 0.2, 0.1)}, "partial_fc": {"sample_rate": 1.0}}.get(name, {})


@pytest.mark.parametrize("name", HEADS)
def test_loss_and_metrics_equal_the_printed_equation(name: str) -> None:
    head, (features, labels) = make_head(name, **settings_of(name)), make_batch()
    features[:4] += 300 * initial_rows(0, IDENTITIES, DIM, 3)[labels[:4]]  # some are right
    output = head(features, labels)
    weight = head.weight_MD.detach().double().numpy()
    loss, right, own = slow_loss(name, weight, features.double().numpy(), labels.numpy())
    assert output.loss.item() == pytest.approx(loss, rel=1e-5)
    assert output.metrics["accuracy"].item() == pytest.approx(right)
    assert 0 < right < 1
    assert output.metrics["cosine"].item() == pytest.approx(own, abs=1e-6)


@pytest.mark.parametrize("name", HEADS)
def test_gradients_are_those_of_the_loss(name: str) -> None:
    head, (features, labels) = make_head(name, **settings_of(name)).eval().double(), make_batch()
    if isinstance(head.margin, AdaptiveMargin):
        head.margin.deviation.fill_(5.0)
    features = features.double().requires_grad_()
    head(features, labels).loss.backward()
    assert features.grad is not None
    assert head.weight_MD.grad is not None
    plain = plain_loss(head, features.detach(), labels)
    for (values, gradient), place in zip(plain, [features.grad, head.weight_MD.grad], strict=True):
        assert gradient.abs().max() > 1e-3, values.shape
        np.testing.assert_allclose(place.numpy(), gradient.numpy(), rtol=1e-9, atol=1e-9)


def plain_loss(head: ClassifierHead, features: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Features and rows with their gradients by autograd from the usual formula in float64."""
    features, weight = features.clone().requires_grad_(), head.weight_MD.detach().clone().requires_grad_()
    norms = features.detach().norm(dim=1)
    cosines = torch.nn.functional.normalize(features) @ torch.nn.functional.normalize(weight).T
    own = cosines[torch.arange(len(labels)), labels]
    right = torch.nn.functional.one_hot(labels, IDENTITIES).bool()
    logits = SCALE * torch.where(right, head.margin(own, norms)[:, None], cosines)
    torch.nn.functional.cross_entropy(logits, labels).backward()
    assert features.grad is not None
    assert weight.grad is not None
    return [(features, features.grad), (weight, weight.grad)]


@pytest.mark.parametrize("name", HEADS)
def test_scale_64_stays_finite_for_half_precision_features(name: str) -> None:
    head = make_head(name, scale=64.0, **settings_of(name))
    rows = head.weight_MD.detach()
    for features in (1e4 * rows[:BATCH], -1e4 * rows[:BATCH], 600 * torch.randn(BATCH, DIM)):
        half = features.half().requires_grad_()
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            output = head(half, torch.arange(BATCH))
        output.loss.backward()
        assert output.loss.dtype == torch.float32
        assert torch.isfinite(output.loss)
        assert half.grad is not None
        assert torch.isfinite(half.grad).all()


def test_scale_and_margin_are_the_heads_own_unless_given() -> None:
    assert [make_head(name, scale=None).scale for name in HEADS] == [64.0] * 5
    assert TrainingConfig().scale_of_head == 16.0
    assert make_head("arcface").margin.m2 == 0.5
    assert make_head("cosface").margin.m3 == make_head("partial_fc").margin.m3 == 0.4
    assert make_head("arcface", margin=0.1).margin.m2 == 0.1


def test_a_second_backward_is_refused_rather_than_wrong() -> None:
    features, labels = make_batch()
    loss = make_head()(features.requires_grad_(), labels).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_drawn_rows_are_the_batch_and_others_up_to_the_rate() -> None:
    positives = np.array([0, 7, 8, 99])
    for step in range(50):
        rows = draw_rows(100, positives, 0.3, [1, step, 0])
        assert len(rows) == 30
        assert (np.diff(rows) > 0).all()
        assert np.isin(positives, rows).all()
        assert 0 <= rows.min() <= rows.max() <= 99
    assert draw_rows(100, positives, 0.01, [1, 0, 0]).tolist() == positives.tolist()
    assert draw_rows(100, positives, 1.0, [1, 0, 0]).tolist() == list(range(100))


def test_every_other_row_is_drawn_equally_often() -> None:
    positives = np.array([0, 7, 8, 29])
    counts = np.zeros(30)
    draws = 4000
    for step in range(draws):
        counts[draw_rows(30, positives, 0.5, [0, step, 0])] += 1
    share, others = 11 / 26, np.delete(counts, positives) / draws
    assert (counts[positives] == draws).all()
    assert np.abs(others - share).max() < 4.5 * math.sqrt(share * (1 - share) / draws)


def test_draws_depend_on_seed_step_and_rank_each() -> None:
    seeds = ([0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0])
    drawn = {tuple(draw_rows(1000, np.array([5]), 0.1, seed)) for seed in seeds}
    assert len(drawn) == 4
    assert tuple(draw_rows(1000, np.array([5]), 0.1, [0, 1, 0])) in drawn


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_sampling_all_rows_equals_all_rows_step_for_step(optimizer: str) -> None:
    """A rate just below 1 rounds up to all rows, but they are lent and taken back in every step."""
    whole, sampled = make_head("cosface"), make_head("partial_fc", sample_rate=0.999)
    assert sampled.samples
    assert not whole.samples
    optimizers = [make_optimizer(head, optimizer) for head in (whole, sampled)]
    for head, each in zip((whole, sampled), optimizers, strict=True):
        head.attach(each)
    assert take_steps(whole, optimizers[0], 5) == take_steps(sampled, optimizers[1], 5)
    assert torch.equal(whole.weight_MD, sampled.weight_MD)
    for name in sampled.row_tensors()[1:]:
        kept = optimizers[0].state[whole.weight_MD][name.removesuffix("_MD")]
        assert torch.equal(sampled.get_buffer(name), kept)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_rows_that_are_not_drawn_neither_move_nor_decay_nor_forget(optimizer: str) -> None:
    head = make_head("partial_fc", sample_rate=0.5)
    each = make_optimizer(head, optimizer)
    head.attach(each)
    take_steps(head, each, 3)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    _, labels = make_batch(seed=3)
    drawn = draw_rows(IDENTITIES, np.unique(labels.numpy()), 0.5, [3, 3, 0])
    take_steps(head, each, 1, first=3)
    others = np.setdiff1d(np.arange(IDENTITIES), drawn)
    for name in head.row_tensors():
        now = head.state_dict()[name]
        assert torch.equal(now[others], before[name][others]), name
        assert (now[drawn] != before[name][drawn]).any(dim=1).all(), name
    assert before["momentum_buffer_MD" if optimizer == "sgd" else "exp_avg_MD"][others].abs().sum() > 0


def test_only_rows_in_play_count_in_the_softmax() -> None:
    head, (features, labels) = make_head("partial_fc", sample_rate=0.5), make_batch()
    head.attach(make_optimizer(head, "sgd"))
    head.begin_step(labels, 0)
    drawn = draw_rows(IDENTITIES, np.unique(labels.numpy()), 0.5, [3, 0, 0])
    places = np.searchsorted(drawn, labels.numpy())
    weight = head.weight_MD.double().numpy()[drawn]
    expected, _, _ = slow_loss("cosface", weight, features.double().numpy(), places)
    assert head(features, labels).loss.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_state_dict_between_steps_is_all_there_is_to_go_on_from(optimizer: str) -> None:
    first = make_head("partial_fc", sample_rate=0.5)
    each = make_optimizer(first, optimizer)
    first.attach(each)
    take_steps(first, each, 3)
    second = make_head("partial_fc", sample_rate=0.5)
    other = make_optimizer(second, optimizer)
    second.attach(other)
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    other.load_state_dict(copy.deepcopy(each.state_dict()))
    assert take_steps(first, each, 3, first=3) == take_steps(second, other, 3, first=3)
    assert torch.equal(first.weight_MD, second.weight_MD)


def test_a_step_of_several_micro_batches_adds_up_to_one() -> None:
    """In double precision: what single precision rounds depends on the processor."""
    gradients = []
    features, labels = make_batch()
    for parts in (1, 2):
        head = make_head("partial_fc", sample_rate=0.5).double()
        head.attach(make_optimizer(head, "sgd"))
        head.begin_step(labels, 0)
        for part, names in zip(features.double().chunk(parts), labels.chunk(parts), strict=True):
            (head(part, names).loss / parts).backward()
        assert head.sampled_SD.grad is not None
        gradients.append(head.sampled_SD.grad)
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-10)


def test_sampling_without_its_preparations_is_refused() -> None:
    head, (features, labels) = make_head("partial_fc", sample_rate=0.5), make_batch()
    with pytest.raises(RuntimeError, match="attach the optimizer"):
        head.begin_step(labels, 0)
    head.attach(make_optimizer(head, "sgd"))
    with pytest.raises(RuntimeError, match="call begin_step before a batch"):
        head(features, labels)
    head.begin_step(labels[:1], 0)
    with pytest.raises(RuntimeError, match="with all of its identities"):
        head(features, labels)
    with pytest.raises(ValueError, match=r"SGD and with AdamW.*, not with Adagrad"):
        head.attach(torch.optim.Adagrad(head.parameters()))


def test_initial_rows_are_the_same_in_any_share() -> None:
    whole = initial_rows(0, 10_000, 4, seed=5)
    assert torch.equal(torch.cat([initial_rows(0, 3333, 4, 5), initial_rows(3333, 10_000, 4, 5)]), whole)
    assert whole.std().item() == pytest.approx(0.01, rel=0.02)
    assert not torch.equal(whole, initial_rows(0, 10_000, 4, seed=6))


CASES = (
    ("arcface", "sgd"),
    ("adaface", "sgd"),
    ("partial_fc", "adamw"),
    ("curricularface", "sgd"),
    ("magface", "sgd"),
    ("broadface", "sgd"),
    ("virtual_fc", "sgd"),
)
SHARED = """
import sys
import torch
from torch.nn.parallel import DistributedDataParallel
sys.path.insert(0, sys.argv[1])
from test_classifier import CASES, make_network, make_shared, run_steps
from test_rivals import OTHERS, run_other
from gif_core.runtime.process_group import join_processes, leave_processes
rank, folder = int(sys.argv[2]), sys.argv[3]
join_processes("cpu", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
for name, optimizer in CASES:
    found = run_steps(DistributedDataParallel(make_network()), make_shared(name), optimizer, rank, 2)
    torch.save(found, f"{folder}/{name}{rank}.pt")
for name in OTHERS:
    torch.save(run_other(name, rank, 2), f"{folder}/{name}{rank}.pt")
leave_processes()
"""


def make_shared(name: str) -> ClassifierHead:
    """All rows are drawn, but lent and taken back in every step of `partial_fc`."""
    extra = {"partial_fc": {"sample_rate": 0.999}, "broadface": {"queue_size": 20}, "magface": {"norm_weight": 6}}
    extra["virtual_fc"] = {"anchors": 11}
    return make_head(name, **extra.get(name, {})).double()


def make_network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(DIM, DIM).double()


def run_steps(network: torch.nn.Module, head: ClassifierHead, name: str, rank: int, world: int) -> dict[str, Tensor]:
    """Three steps of network and head; all that came of them."""
    optimizer = make_optimizer(head, name)
    whole = SGD(network.parameters(), lr=0.1)
    head.attach(optimizer)
    found: dict[str, Tensor] = {}
    for step in range(3):
        features, labels = (part.chunk(world)[rank] for part in make_batch(seed=step))
        features = features.double().requires_grad_()
        head.begin_step(labels, step)
        output = head(network(features), labels)
        optimizer.zero_grad()
        whole.zero_grad()
        output.loss.backward()
        learned = head.sampled_SD if head.samples else head.weight_MD
        assert features.grad is not None
        assert learned.grad is not None
        found |= {f"loss{step}": output.loss.detach(), f"features{step}": features.grad / world}
        found |= {f"rows{step}": learned.grad.clone(), f"accuracy{step}": output.metrics["accuracy"]}
        optimizer.step()
        whole.step()
        head.end_step()
    network_state = {f"network{i}": value.detach() for i, value in enumerate(network.parameters())}
    return found | network_state | {"weight": head.weight_MD.detach()}


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes made of every case."""
    folder = tmp_path_factory.mktemp("two")
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SHARED, str(Path(__file__).parent), str(rank), str(folder)],
            cwd=PROJECT,
            env=environment,
        )
        for rank in range(2)
    ]
    assert [process.wait(120) for process in started] == [0, 0]
    return folder


@pytest.mark.parametrize(("name", "optimizer"), CASES)
def test_two_processes_equal_one_on_the_same_batch(of_two: Path, name: str, optimizer: str) -> None:
    """Losses, gradients by features and by rows, and rows and averaged network after three steps."""
    parts = [torch.load(of_two / f"{name}{rank}.pt", weights_only=True) for rank in range(2)]
    for part, value in run_steps(make_network(), make_shared(name), optimizer, 0, 1).items():
        shared = part.startswith(("features", "rows", "weight"))
        found = [torch.cat([each[part] for each in parts])] if shared else [each[part] for each in parts]
        for each in found:
            torch.testing.assert_close(each, value, atol=1e-9, rtol=1e-9, msg=part)


@pytest.mark.parametrize("name", OTHERS)
def test_two_processes_equal_one_with_heads_that_are_no_plain_classifiers(of_two: Path, name: str) -> None:
    """Losses (of pairs: their mean over the processes), the network, and rows, queues and running means."""
    parts = [torch.load(of_two / f"{name}{rank}.pt", weights_only=True) for rank in range(2)]
    for part, value in run_other(name, 0, 1).items():
        if part == "losses":
            found = (parts[0][part] + parts[1][part]) / 2
        else:
            found = torch.cat([each[part] for each in parts]) if part == "head.weight_MD" else parts[1][part]
        torch.testing.assert_close(found, value, atol=1e-9, rtol=1e-9, msg=part)


def test_a_head_tells_which_rows_it_holds() -> None:
    head = make_head("partial_fc", sample_rate=0.5)
    head.attach(make_optimizer(head, "adamw"))
    assert head.row_range == (0, IDENTITIES)
    assert head.row_tensors() == ("weight_MD", "exp_avg_MD", "exp_avg_sq_MD")
    for name in head.row_tensors():
        assert len(head.state_dict()[name]) == IDENTITIES


def test_combined_margin_of_arcface_is_arcface() -> None:
    features, labels = make_batch()
    losses = [make_head(name)(features, labels).loss for name in ("arcface", "combined_margin")]
    assert torch.equal(*losses)
    assert isinstance(make_head().margin, CombinedMargin)


@pytest.mark.parametrize("head", HEADS)
def test_rows_can_start_at_the_code_vectors_as_long_as_random_rows(head: str) -> None:
    vectors = np.random.default_rng(0).standard_normal((IDENTITIES, DIM)).astype(np.float32)
    config = TrainingConfig.model_validate({"head": head, "rows_from": "code_vectors"})
    rows = build_head(config, np.zeros((IDENTITIES, 1), np.int64), vectors).state_dict()["weight_MD"]
    lengths = rows.norm(dim=1)
    torch.testing.assert_close(rows / lengths[:, None], torch.nn.functional.normalize(torch.from_numpy(vectors)))
    random_length = initial_rows(0, 4000, DIM, seed=0).norm(dim=1).square().mean().sqrt().item()
    assert lengths.tolist() == pytest.approx([random_length] * IDENTITIES, rel=0.02)
