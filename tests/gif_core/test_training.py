import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

from gif_core.training import (
    TrainingDivergedError,
    TrainingStep,
    build_optimizer,
    build_scheduler,
    load_batch,
    plan_batches,
    train,
)
from schemas.training import TrainingConfig

CPU = torch.device("cpu")
IDENTITIES, SAMPLES, DIM = 8, 4, 16


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small batches gain nothing from more threads, and lose much when the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass
class ColouredFaces:
    """One colour for each identity, with noise: learnable in a few steps."""

    images: np.ndarray
    labels_N: np.ndarray
    threads: set[int] = field(default_factory=set)

    def load(self, indices: np.ndarray) -> np.ndarray:
        self.threads.add(threading.get_ident())
        return self.images[indices]


def make_faces(identities: int = IDENTITIES, samples: int = SAMPLES) -> ColouredFaces:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(identities), samples)
    colours = rng.integers(30, 225, size=(identities, 1, 1, 3))
    noise = rng.integers(-25, 25, size=(len(labels), 112, 112, 3))
    return ColouredFaces((colours[labels] + noise).astype(np.uint8), labels)


def make_codes() -> np.ndarray:
    return np.stack([np.arange(IDENTITIES) // 4, np.arange(IDENTITIES) // 2 % 2, np.arange(IDENTITIES) % 2], axis=1)


def make_code_vectors() -> np.ndarray:
    vectors = np.random.default_rng(1).normal(size=(IDENTITIES, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_config(**changes: object) -> TrainingConfig:
    settings = {
        "backbone": "iresnet_tiny",
        "batch_size": 16,
        "epochs": 2,
        "gamma": 10.0,
        "learning_rate": 0.02,
    }
    return TrainingConfig.model_validate(settings | changes)


def run(config: TrainingConfig, seed: int = 0, faces: ColouredFaces | None = None) -> list[TrainingStep]:
    return list(train(faces or make_faces(), make_codes(), make_code_vectors(), config, seed=seed, device=CPU))


def weights(steps: list[TrainingStep]) -> dict[str, torch.Tensor]:
    state = steps[-1].state
    return state.model.state_dict() | {f"head.{k}": v for k, v in state.head.state_dict().items()}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_losses_fall_on_a_learnable_problem(optimizer: str) -> None:
    rate = {"sgd": 0.05, "adamw": 0.003}[optimizer]
    steps = run(make_config(epochs=12, optimizer=optimizer, learning_rate=rate))
    first, last = steps[0].metrics, steps[-1].metrics
    assert last["loss"] < 0.5 * first["loss"]
    assert last["loss_codes"] < 0.7 * first["loss_codes"]
    assert last["loss_alignment"] < 0.5 * first["loss_alignment"]
    assert last["alignment"] > 0.5


def test_same_seed_gives_identical_weights_and_losses() -> None:
    first, second = run(make_config()), run(make_config())
    assert [step.metrics for step in first] == [step.metrics for step in second]
    for name, value in weights(first).items():
        assert torch.equal(value, weights(second)[name]), name


def test_another_seed_gives_other_weights() -> None:
    first, second = run(make_config(), seed=0), run(make_config(), seed=1)
    assert not torch.equal(weights(first)["fc.weight"], weights(second)["fc.weight"])


def test_global_random_state_is_left_alone() -> None:
    before_torch, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    run(make_config(epochs=1))
    assert torch.equal(torch.get_rng_state(), before_torch)
    assert np.array_equal(np.random.get_state()[1], before_numpy)  # noqa: NPY002


def test_every_step_is_reported_with_its_place_and_rate() -> None:
    steps = run(make_config(epochs=3))
    assert [(step.step, step.epoch) for step in steps] == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert {step.steps for step in steps} == {6}
    assert all(step.images_per_second > 0 for step in steps)
    assert steps[-1].state.step == 6
    assert [step.metrics["learning_rate"] for step in steps] == pytest.approx(
        [0.02 * 0.5 * (1 + np.cos(np.pi * i / 6)) for i in range(6)]
    )


def test_closing_the_iterator_ends_the_thread_that_reads_ahead() -> None:
    faces, before = make_faces(), set(threading.enumerate())
    steps = train(faces, make_codes(), make_code_vectors(), make_config(epochs=50), seed=0, device=CPU)
    next(steps)
    assert [t.name for t in set(threading.enumerate()) - before] == ["gif-prefetch_0"]
    assert faces.threads.isdisjoint({threading.get_ident()})
    steps.close()
    assert set(threading.enumerate()) == before


def test_training_left_in_evaluation_mode_by_the_consumer_goes_on_in_training_mode() -> None:
    undisturbed = run(make_config())
    disturbed = []
    for step in train(make_faces(), make_codes(), make_code_vectors(), make_config(), seed=0, device=CPU):
        step.state.model.eval()
        disturbed.append(step)
    assert disturbed[-1].metrics == undisturbed[-1].metrics


def test_an_error_while_reading_reaches_the_consumer() -> None:
    class Broken(ColouredFaces):
        def load(self, indices: np.ndarray) -> np.ndarray:
            raise OSError("shard 3 is damaged")

    broken = Broken(make_faces().images, make_faces().labels_N)
    with pytest.raises(OSError, match="shard 3"):
        run(make_config(), faces=broken)


def test_divergence_names_the_step_and_what_to_try() -> None:
    steps = train(make_faces(), make_codes(), make_code_vectors(), make_config(), seed=0, device=CPU)
    first = next(steps)
    with torch.no_grad():
        next(first.state.model.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingDivergedError, match=r"diverged at step 2: loss nan.*learning_rate.*warmup_steps"):
        next(steps)


def test_warm_up_is_linear_and_the_cosine_ends_at_zero() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = build_scheduler(optimizer, steps=12, warmup_steps=4)
    rates = []
    for _ in range(13):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates[:5] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])
    assert rates[8] == pytest.approx(1.0)
    assert rates[12] == pytest.approx(0.0)
    assert rates[4:] == sorted(rates[4:], reverse=True)


def test_warm_up_as_long_as_the_training_is_refused() -> None:
    with pytest.raises(ValueError, match="warmup_steps=4 must be fewer than the 4 steps"):
        run(make_config(warmup_steps=4))


def test_all_that_is_learned_has_the_same_weight_decay() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.PReLU(), nn.BatchNorm1d(3))
    model[2].weight.requires_grad = False
    (group,) = build_optimizer(list(model.parameters()), make_config(weight_decay=0.01)).param_groups
    assert group["weight_decay"] == 0.01
    assert len(group["params"]) == 4


def test_an_epoch_shows_every_image_once_and_drops_the_ragged_batch() -> None:
    plans = list(plan_batches(35, make_config(batch_size=16, epochs=2), seed=0))
    assert [(plan.epoch, len(plan.indices)) for plan in plans] == [(0, 16), (0, 16), (1, 16), (1, 16)]
    for epoch in range(2):
        seen = np.concatenate([plan.indices for plan in plans if plan.epoch == epoch])
        assert len(set(seen.tolist())) == 32
    assert not np.array_equal(plans[0].indices, plans[2].indices)


def test_fewer_images_than_a_batch_are_one_batch() -> None:
    plans = list(plan_batches(10, make_config(batch_size=16, epochs=1), seed=0))
    assert [sorted(plan.indices.tolist()) for plan in plans] == [list(range(10))]


def test_order_of_epoch_zero_depends_on_the_seed() -> None:
    first = next(plan_batches(100, make_config(), seed=1))
    second = next(plan_batches(100, make_config(), seed=2))
    assert not np.array_equal(first.indices, second.indices)
    assert not np.array_equal(first.flips, second.flips)


def test_half_of_the_images_are_mirrored_and_none_without_flip() -> None:
    (mirrored,) = plan_batches(4000, make_config(batch_size=4000, epochs=1), seed=0)
    (plain,) = plan_batches(4000, make_config(batch_size=4000, epochs=1, flip=False), seed=0)
    assert 0.45 < mirrored.flips.mean() < 0.55
    assert not plain.flips.any()
    assert np.array_equal(mirrored.indices, plain.indices)


def test_mirroring_swaps_left_and_right_of_the_planned_images_alone() -> None:
    faces = make_faces()
    original = faces.images.copy()
    plan = next(plan_batches(len(original), make_config(), seed=0))
    batch = load_batch(faces, plan)
    for image, index, flip in zip(batch.images, plan.indices, plan.flips, strict=True):
        assert np.array_equal(image, original[index, :, ::-1] if flip else original[index])
    assert np.array_equal(batch.labels, faces.labels_N[plan.indices])
    assert np.array_equal(faces.images, original)


def test_labels_beyond_the_codes_are_refused() -> None:
    with pytest.raises(ValueError, match="labels 0 to 8 do not fit 8 identity codes"):
        run(make_config(), faces=make_faces(identities=9))


def test_a_single_image_is_refused() -> None:
    with pytest.raises(ValueError, match="two images"):
        run(make_config(), faces=make_faces(identities=1, samples=1))
