import threading
from collections.abc import Callable, Generator, Iterator

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from gif_core.faces import Faces
from gif_core.training import TrainingDivergedError, TrainingStep, build_optimizer, build_scheduler, train
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


def draw_faces(identities: int = IDENTITIES, samples: int = SAMPLES) -> list[tuple[int, str, bytes]]:
    """One colour for each identity, with noise: learnable in a few steps."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(identities), samples)
    colours = rng.integers(30, 225, size=(identities, 1, 1, 3))
    images = (colours[labels] + rng.integers(-25, 25, size=(len(labels), 112, 112, 3))).astype(np.uint8)
    encoded = [cv2.imencode(".bmp", image)[1].tobytes() for image in images]
    return [
        (int(label), f"{number}.bmp", image) for number, (label, image) in enumerate(zip(labels, encoded, strict=True))
    ]


@pytest.fixture(scope="module")
def make_faces(tmp_path_factory: pytest.TempPathFactory, write_shard: Callable) -> Callable[..., Faces]:
    def make(rows: list[tuple[int, str, bytes]]) -> Faces:
        return Faces([write_shard(tmp_path_factory.mktemp("faces") / "a.arrow", rows, len(rows))])

    return make


@pytest.fixture(scope="module")
def faces(make_faces: Callable[..., Faces]) -> Faces:
    return make_faces(draw_faces())


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


def start(faces: Faces, config: TrainingConfig, seed: int = 0) -> Generator[TrainingStep, None, None]:
    return train(faces, make_codes(), make_code_vectors(), config, seed=seed, device=CPU)


def run(faces: Faces, config: TrainingConfig, seed: int = 0) -> list[TrainingStep]:
    return list(start(faces, config, seed))


def weights(steps: list[TrainingStep]) -> dict[str, torch.Tensor]:
    state = steps[-1].state
    return state.model.state_dict() | {f"head.{k}": v for k, v in state.head.state_dict().items()}


@pytest.mark.parametrize("negatives", [0, 1024])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_losses_fall_on_a_learnable_problem(faces: Faces, optimizer: str, negatives: int) -> None:
    rate = {"sgd": 0.05, "adamw": 0.003}[optimizer]
    steps = run(faces, make_config(epochs=12, optimizer=optimizer, learning_rate=rate, negatives=negatives))
    first, last = steps[0].metrics, steps[-1].metrics
    assert last["loss"] < 0.5 * first["loss"]
    assert last["loss_codes"] < 0.7 * first["loss_codes"]
    assert last["loss_alignment"] < 0.5 * first["loss_alignment"]
    assert last["alignment"] > (first["alignment"] if negatives else 0.5), "a softmax is content before z is at h"


def test_same_seed_gives_identical_weights_and_losses(faces: Faces) -> None:
    first, second = run(faces, make_config()), run(faces, make_config())
    assert [step.metrics for step in first] == [step.metrics for step in second]
    for name, value in weights(first).items():
        assert torch.equal(value, weights(second)[name]), name


def test_another_seed_gives_other_weights(faces: Faces) -> None:
    first, second = run(faces, make_config(), seed=0), run(faces, make_config(), seed=1)
    assert not torch.equal(weights(first)["fc.weight"], weights(second)["fc.weight"])


def test_global_random_state_is_left_alone(faces: Faces) -> None:
    before_torch, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    run(faces, make_config(epochs=1))
    assert torch.equal(torch.get_rng_state(), before_torch)
    assert np.array_equal(np.random.get_state()[1], before_numpy)  # noqa: NPY002


def test_every_step_is_reported_with_its_place_and_rate(faces: Faces) -> None:
    steps = run(faces, make_config(epochs=3))
    assert [(step.step, step.epoch) for step in steps] == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert {step.steps for step in steps} == {6}
    assert all(step.images_per_second > 0 for step in steps)
    assert steps[-1].state.step == 6
    assert [step.metrics["learning_rate"] for step in steps] == pytest.approx(
        [0.02 * 0.5 * (1 + np.cos(np.pi * i / 6)) for i in range(6)]
    )


def test_closing_the_iterator_ends_what_reads_ahead(faces: Faces) -> None:
    before = set(threading.enumerate())
    steps = start(faces, make_config(epochs=50))
    next(steps)
    assert {thread.name for thread in set(threading.enumerate()) - before} == {"gif-loader_0"}
    steps.close()
    assert set(threading.enumerate()) == before


def test_the_number_of_workers_does_not_change_the_weights(faces: Faces) -> None:
    config = make_config(epochs=1, augmentation={"blur": 0.5, "grey": 0.5})
    first, second = run(faces, config), run(Faces(faces.paths, workers=3), config)
    assert [step.metrics for step in first] == [step.metrics for step in second]


def test_training_left_in_evaluation_mode_by_the_consumer_goes_on_in_training_mode(faces: Faces) -> None:
    undisturbed = run(faces, make_config())
    disturbed = []
    for step in start(faces, make_config()):
        step.state.model.eval()
        disturbed.append(step)
    assert disturbed[-1].metrics == undisturbed[-1].metrics


def test_a_damaged_image_reaches_the_consumer_by_name(make_faces: Callable[..., Faces]) -> None:
    rows = draw_faces()
    rows[3] = (0, "damaged.jpg", b"no image")
    with pytest.raises(ValueError, match=r"face 3 \(damaged.jpg\)"):
        run(make_faces(rows), make_config())


def test_divergence_names_the_step_and_what_to_try(faces: Faces) -> None:
    steps = start(faces, make_config())
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


def test_warm_up_as_long_as_the_training_is_refused(faces: Faces) -> None:
    with pytest.raises(ValueError, match="warmup_steps=4 must be fewer than the 4 steps"):
        run(faces, make_config(warmup_steps=4))


def test_all_that_is_learned_has_the_same_weight_decay() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.PReLU(), nn.BatchNorm1d(3))
    model[2].weight.requires_grad = False
    (group,) = build_optimizer(list(model.parameters()), make_config(weight_decay=0.01)).param_groups
    assert group["weight_decay"] == 0.01
    assert len(group["params"]) == 4


def test_labels_beyond_the_codes_are_refused(make_faces: Callable[..., Faces]) -> None:
    with pytest.raises(ValueError, match="labels 0 to 8 do not fit 8 identity codes"):
        run(make_faces(draw_faces(identities=9)), make_config())


def test_a_single_image_is_refused(make_faces: Callable[..., Faces]) -> None:
    with pytest.raises(ValueError, match="two images"):
        run(make_faces(draw_faces(identities=1, samples=1)), make_config())
