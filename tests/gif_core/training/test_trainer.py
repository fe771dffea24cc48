import itertools
import threading
from collections.abc import Callable

import cv2
import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD

from gif_core.heads.code_vectors import LivingVectors
from gif_core.images import Faces
from gif_core.runtime import ProcessGroup
from gif_core.training import begin_training
from gif_core.training import trainer as module
from gif_core.training.oom import OutOfMemoryError
from gif_core.training.schedules import learning_rate, row_learning_rate
from gif_core.training.step import TrainingDivergedError
from gif_core.training.trainer import Training, build_optimizer
from schemas.training import TrainingConfig

pytestmark = pytest.mark.usefixtures("one_thread")
ALONE = ProcessGroup(torch.device("cpu"))
IDENTITIES, SAMPLES, DIM = 8, 4, 16


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
        "negatives": 0,
        "learning_rate": 0.02,
    }
    return TrainingConfig.model_validate(settings | changes)


def begin(faces: Faces, config: TrainingConfig, seed: int = 0) -> Training:
    return begin_training(faces, make_codes(), make_code_vectors(), config, seed=seed, group=ALONE)


def run(faces: Faces, config: TrainingConfig, seed: int = 0) -> Training:
    training = begin(faces, config, seed)
    assert list(training.run()) == training.reports
    return training


def metrics(training: Training) -> list[dict[str, float]]:
    """All but what depends on the clock."""
    return [{k: v for k, v in report.metrics.items() if k != "images_per_second"} for report in training.reports]


def weights(training: Training) -> dict[str, torch.Tensor]:
    state = training.state
    return state.model.state_dict() | {f"head.{k}": v for k, v in state.head.state_dict().items()}


@pytest.mark.parametrize("negatives", [0, 1024])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_losses_fall_on_a_learnable_problem(faces: Faces, optimizer: str, negatives: int) -> None:
    rate = {"sgd": 0.05, "adamw": 0.003}[optimizer]
    reports = run(faces, make_config(epochs=12, optimizer=optimizer, learning_rate=rate, negatives=negatives)).reports
    first, last = reports[0].metrics, reports[-1].metrics
    assert last["loss"] < 0.5 * first["loss"]
    assert last["loss_codes"] < 0.7 * first["loss_codes"]
    assert last["loss_alignment"] < 0.5 * first["loss_alignment"]
    assert last["alignment"] > (first["alignment"] if negatives else 0.5), "a softmax is content before z is at h"


def test_same_seed_gives_identical_weights_and_losses(faces: Faces) -> None:
    first, second = run(faces, make_config()), run(faces, make_config())
    assert metrics(first) == metrics(second)
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
    training = run(faces, make_config(epochs=3))
    reports = training.reports
    assert [(report.step, report.epoch) for report in reports] == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert {report.steps for report in reports} == {6}
    assert all(report.metrics["images_per_second"] > 0 for report in reports)
    assert all(report.metrics["gradient_norm"] > 0 and report.metrics["skipped"] == 0 for report in reports)
    assert training.state.step == 6
    assert [report.metrics["learning_rate"] for report in reports] == pytest.approx(
        [0.02 * 0.5 * (1 + np.cos(np.pi * i / 6)) for i in range(6)]
    )


def test_reports_of_many_steps_are_their_means(faces: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(epochs=1, batch_size=2)
    every = metrics(run(faces, config))
    monkeypatch.setattr(module, "MOST_REPORTS", 4)
    few = run(faces, config)
    assert [report.step for report in few.reports] == [4, 8, 12, 16]
    for name in every[0]:
        assert metrics(few)[1][name] == pytest.approx(np.mean([step[name] for step in every[4:8]]), rel=1e-5), name


def test_a_report_of_many_steps_has_the_number_of_those_that_were_skipped(
    faces: Faces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_REPORTS", 4)
    training, step = begin(faces, make_config(epochs=1, batch_size=2)), itertools.count(1)
    training.state.model.register_forward_pre_hook(
        lambda _, images: images[0] * float("inf") if next(step) in {2, 3, 9} else None
    )
    assert [report.metrics["skipped"] for report in training.run()] == [2, 0, 1, 0]


def test_closing_the_iterator_ends_what_reads_ahead(faces: Faces) -> None:
    before = set(threading.enumerate())
    steps = begin(faces, make_config(epochs=50)).run()
    next(steps)
    assert {thread.name for thread in set(threading.enumerate()) - before} == {"gif-loader_0"}
    steps.close()
    assert set(threading.enumerate()) == before


def test_the_number_of_workers_does_not_change_the_weights(faces: Faces) -> None:
    config = make_config(epochs=1, augmentation={"blur": 0.5, "grey": 0.5})
    first, second = run(faces, config), run(Faces(faces.paths, workers=3), config)
    assert metrics(first) == metrics(second)


def test_training_left_in_evaluation_mode_by_the_consumer_goes_on_in_training_mode(faces: Faces) -> None:
    undisturbed, disturbed = run(faces, make_config()), begin(faces, make_config())
    for _ in disturbed.run():
        disturbed.state.model.eval()
    assert metrics(disturbed) == metrics(undisturbed)


def test_a_damaged_image_reaches_the_consumer_by_name(make_faces: Callable[..., Faces]) -> None:
    rows = draw_faces()
    rows[3] = (0, "damaged.jpg", b"no image")
    with pytest.raises(ValueError, match=r"face 3 \(damaged.jpg\)"):
        run(make_faces(rows), make_config())


@pytest.mark.parametrize("head", ["gif", "adaface", "partial_fc"])
def test_a_step_without_a_finite_gradient_changes_nothing(faces: Faces, head: str) -> None:
    """Not the running metrics of batch normalisation and of AdaFace either, which a forward pass changes."""
    training = begin(faces, make_config(head=head))
    steps = training.run()
    next(steps)
    before = {name: value.clone() for name, value in weights(training).items()}
    overflow = training.state.model.register_forward_pre_hook(lambda _, images: images[0] * float("inf"))
    assert next(steps).metrics["skipped"] == 1
    for name, value in weights(training).items():
        assert torch.equal(value, before[name]), name
    overflow.remove()
    assert next(steps).metrics["skipped"] == 0
    assert all(value.isfinite().all() for value in weights(training).values())


def test_divergence_names_the_step_and_what_to_try(faces: Faces) -> None:
    training = begin(faces, make_config(max_skipped=2, epochs=3))
    steps = training.run()
    next(steps)
    with torch.no_grad():
        next(training.state.model.parameters()).fill_(float("nan"))
    assert next(steps).metrics["skipped"] == 1
    with pytest.raises(
        TrainingDivergedError, match=r"2 steps in a row, the last of them step 3.*loss nan.*learning_rate.*warmup_steps"
    ):
        next(steps)


def test_an_interrupted_look_at_the_network_does_not_lose_the_report_of_its_step(faces: Faces) -> None:
    def interrupt(_: nn.Module) -> dict[str, float]:
        raise KeyboardInterrupt

    training = begin(faces, make_config(epochs=1))
    training.verify = interrupt
    with pytest.raises(KeyboardInterrupt):
        list(training.run())
    assert [report.step for report in training.reports] == list(range(1, training.state.step + 1))


def exhaust(*_: object) -> None:
    torch.empty(2**50)


@pytest.mark.parametrize("place", ["the network", "the head's preparations", "the optimizer"])
def test_out_of_memory_names_the_settings_to_change(faces: Faces, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    training = begin(faces, make_config())
    model, head, optimizer = training.state.model, training.state.head, training.state.optimizer
    parts = {"the network": (model, "forward"), "the head's preparations": (head, "begin_step")}
    monkeypatch.setattr(*parts.get(place, (optimizer, "step")), exhaust)
    with pytest.raises(OutOfMemoryError, match=r"16 images: raise training.accumulation.*gradient_checkpointing"):
        next(training.run())


@pytest.mark.parametrize(("head", "advice"), [("cosface", "head=gif keeps none"), ("partial_fc", "lower.*sample_rate")])
def test_rows_that_do_not_fit_the_memory_are_told_before_the_first_step(faces: Faces, head: str, advice: str) -> None:
    codes, vectors = np.broadcast_to(0, (2**44, 3)), np.broadcast_to(np.float32(0), (2**44, DIM))
    with pytest.raises(OutOfMemoryError, match=f"the network and its head: training.head={head} .*{advice}"):
        begin_training(faces, codes, vectors, make_config(head=head), seed=0, group=ALONE)


def test_parts_of_a_batch_add_up_to_the_whole(faces: Faces) -> None:
    """Where nothing is normalised over the batch: the gradient of the first step is that of the undivided batch."""
    whole, parts = begin(faces, make_config()), begin(faces, make_config(accumulation=4))
    for training in (whole, parts):
        for part in training.state.model.modules():
            part.train = lambda mode=True, part=part: part  # type: ignore[method-assign]
            part.training = False
        next(training.run())
    norms = [metrics(training)[0]["gradient_norm"] for training in (whole, parts)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert metrics(whole)[0]["loss"] == pytest.approx(metrics(parts)[0]["loss"], rel=1e-5)


def test_parts_of_a_batch_that_are_not_of_one_size_are_as_many_as_configured(faces: Faces) -> None:
    training = begin(faces, make_config(batch_size=13, accumulation=4))
    seen: list[int] = []
    training.state.model.register_forward_pre_hook(lambda _, images: seen.append(len(images[0])))
    next(training.run())
    assert seen == [4, 3, 3, 3], "none of them a single image, over which nothing can be normalised"


def test_a_clipped_gradient_takes_a_shorter_step_in_the_same_direction(faces: Faces) -> None:
    settings = {"momentum": 0, "weight_decay": 0}
    free, bound = begin(faces, make_config(**settings)), begin(faces, make_config(clip_norm=0.01, **settings))
    start = {name: value.clone() for name, value in weights(free).items()}
    first = [next(training.run()) for training in (free, bound)]
    assert first[0].metrics["gradient_norm"] == first[1].metrics["gradient_norm"] > 0.01
    moved = [(weights(training)["fc.weight"] - start["fc.weight"]).double() for training in (free, bound)]
    factor = 0.01 / first[0].metrics["gradient_norm"]
    assert float(moved[1].norm() / moved[0].norm()) == pytest.approx(factor, rel=1e-2)
    assert torch.nn.functional.cosine_similarity(*(way.flatten() for way in moved), dim=0) > 0.999


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_with_weights_in_full(faces: Faces, precision: str) -> None:
    config = make_config(precision=precision, epochs=4, learning_rate=0.05)
    training, full = run(faces, config), begin(faces, config.model_copy(update={"precision": "fp32"}))
    assert {value.dtype for value in weights(training).values() if value.is_floating_point()} == {torch.float32}
    losses = [step["loss"] for step in metrics(training)]
    assert losses[0] == pytest.approx(next(full.run()).metrics["loss"], rel=0.01)
    assert losses[-1] < 0.5 * losses[0]


def test_warm_up_is_linear_and_the_cosine_ends_at_zero() -> None:
    rates = [learning_rate(step, TrainingConfig(warmup_steps=4), steps=12, peak=2.0) for step in range(13)]
    assert rates[:5] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])
    assert rates[8] == pytest.approx(1.0)
    assert rates[12] == pytest.approx(0.0)
    assert rates[4:] == sorted(rates[4:], reverse=True)


def test_a_linear_schedule_ends_at_zero_and_one_in_steps_drops_to_tenths() -> None:
    linear = TrainingConfig(schedule="linear", warmup_steps=2)
    rates = [learning_rate(step, linear, steps=12, peak=2.0) for step in range(13)]
    assert rates == pytest.approx([1.0, 2.0, *np.linspace(2, 0, 11)])
    steps = TrainingConfig(schedule="step", drops=(0.5, 0.75))
    rates = [learning_rate(step, steps, steps=8, peak=2.0) for step in range(8)]
    assert rates == pytest.approx([2.0] * 4 + [0.2] * 2 + [0.02] * 2)


@pytest.mark.parametrize("every", [1, 4, 20])
def test_a_row_in_use_n_times_makes_n_moves_of_the_row_rate_over_the_root_of_n(every: int) -> None:
    """With gradients of equal length, and a schedule that does not fall yet."""
    config, steps = TrainingConfig(row_rate=0.8, schedule="step", drops=(0.99,)), 80
    vectors, moves = LivingVectors(np.eye(1, 2, dtype=np.float32), config.row_rate), []
    for step in range(every - 1, steps - every, every):
        vectors.select(np.array([0]), ALONE.device)
        before = vectors.rows().detach().clone()
        vectors.rows().grad = before.flip(1) * torch.tensor([1.0, -1.0])
        vectors.optimizer.param_groups[0]["lr"] = row_learning_rate(step, config, steps=steps)
        vectors.optimizer.step()
        vectors.store()
        moves.append(torch.tan(torch.acos((vectors.weight_MD[0] * before).sum())).item())
    assert moves == pytest.approx([0.8 / (steps / every) ** 0.5] * len(moves), rel=1e-2)


def test_clipping_the_backbone_leaves_the_gradient_of_the_head_alone(faces: Faces) -> None:
    """One step of SGD from equal weights: what is clipped moves less, and the head as far as without clipping."""
    moves: dict[str, dict[str, float]] = {}
    for scope in ("none", "all", "backbone"):
        clipping = {} if scope == "none" else {"clip_norm": 1e-3, "clip_scope": scope}
        training = begin(faces, make_config(head="cosface", weight_decay=0, momentum=0, epochs=1, **clipping))
        first = {name: value.clone() for name, value in weights(training).items()}
        next(training.run())
        names = ("conv1.weight", "head.weight_MD")
        moves[scope] = {name: (weights(training)[name] - first[name]).norm().item() for name in names}
    assert moves["backbone"]["head.weight_MD"] == pytest.approx(moves["none"]["head.weight_MD"])
    assert moves["all"]["head.weight_MD"] < 0.1 * moves["none"]["head.weight_MD"]
    assert moves["backbone"]["conv1.weight"] < 0.1 * moves["none"]["conv1.weight"]


def test_warm_up_as_long_as_the_training_is_refused(faces: Faces) -> None:
    with pytest.raises(ValueError, match="warmup_steps=4 must be fewer than the 4 steps"):
        run(faces, make_config(warmup_steps=4))


def test_all_that_is_learned_has_the_same_weight_decay() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.PReLU(), nn.BatchNorm1d(3))
    model[2].weight.requires_grad = False
    (group,) = build_optimizer(list(model.parameters()), make_config(weight_decay=0.01)).param_groups
    assert group["weight_decay"] == 0.01
    assert len(group["params"]) == 4


@pytest.mark.parametrize("head", ["gif", "partial_fc"])
def test_fused_sgd_gives_the_bits_of_plain_sgd(faces: Faces, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of weights in channels-last order, whose gradients have the same order."""
    config = make_config(head=head, weight_decay=0.1, momentum=0.8)
    fused = run(faces, config).state
    assert fused.optimizer.defaults["fused"]
    monkeypatch.setattr(module, "SGD", lambda learned, fused, **settings: SGD(learned, **settings))
    plain = run(faces, config).state
    assert not plain.optimizer.defaults["fused"]
    for name, weights in plain.model.state_dict().items():
        assert torch.equal(weights, fused.model.state_dict()[name]), name


def test_labels_beyond_the_codes_are_refused(make_faces: Callable[..., Faces]) -> None:
    with pytest.raises(ValueError, match="labels 0 to 8 do not fit 8 identity codes"):
        run(make_faces(draw_faces(identities=9)), make_config())


def test_a_single_image_is_refused(make_faces: Callable[..., Faces]) -> None:
    with pytest.raises(ValueError, match="two images"):
        run(make_faces(draw_faces(identities=1, samples=1)), make_config())


@pytest.mark.parametrize("head", ["gif", "cosface", "partial_fc"])
def test_images_of_others_add_their_term_to_the_loss_of_any_head(faces: Faces, head: str) -> None:
    settings = {"head": head, "sample_negatives": 32}
    watched, pushed = (metrics(run(faces, make_config(**settings, sample_weight=weight))) for weight in (0.0, 2.0))
    assert watched[0]["loss_samples"] == pushed[0]["loss_samples"]
    assert pushed[0]["loss"] == pytest.approx(watched[0]["loss"] + 2.0 * pushed[0]["loss_samples"], rel=1e-5)
    assert pushed[1]["loss_samples"] != watched[1]["loss_samples"], "it has moved the weights"
    assert "loss_samples" not in metrics(run(faces, make_config(head=head, epochs=1)))[0]
