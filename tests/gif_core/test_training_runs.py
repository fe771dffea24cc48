"""Training as a job: killed and taken up again, on one process and on two, it is the training it would have been."""

import json
import math
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gif_core import training
from gif_core.code_table import write_code_table
from gif_core.process_group import ProcessGroup
from gif_core.tokenization import CodeShape
from gif_core.training_checkpoints import BACKBONE
from gif_core.training_worker import open_checkpoints, prepare, run_job
from schemas.training import TrainingConfig, TrainingJob

pytestmark = pytest.mark.usefixtures("one_thread")
PROJECT = Path(__file__).parents[2]
IMAGES, DIM, BATCH, EPOCHS = 64, 16, 16, 5
slow = pytest.mark.slow
STEPS = IMAGES // BATCH * EPOCHS
SPY = """
import json, os, signal
from gif_core import training_step, training_worker
take = training_step.Stepper.take

def spy(self, batch):
    step = self.state.step
    if step == int(os.environ["KILL_AT"]) and self.group.leads:
        os.kill(os.getpid(), signal.SIGKILL)
    take(self, batch)
    with open(os.environ["SEEN"], "a") as file:
        file.write(json.dumps([step, batch.labels_B.tolist()]) + "\\n")

training_step.Stepper.take = spy
training_worker.main()
"""
ALONE = ProcessGroup(torch.device("cpu"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, write_shard: Callable[..., Path]) -> Path:
    """As many people as images: the label tells which image was seen."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    images = rng.integers(0, 255, size=(IMAGES, 14, 14, 3)).astype(np.uint8)
    encoded = [cv2.imencode(".png", cv2.resize(image, (112, 112)))[1].tobytes() for image in images]
    write_shard(folder / "a.arrow", [(row, f"{row}.png", image) for row, image in enumerate(encoded)], IMAGES)
    vectors = rng.normal(size=(IMAGES, DIM)).astype(np.float32)
    save_file(
        {"code_vectors": vectors / np.linalg.norm(vectors, axis=1, keepdims=True)}, folder / "vectors.safetensors"
    )
    codes = np.stack([np.arange(IMAGES) // 16, np.arange(IMAGES) // 4 % 4, np.arange(IMAGES) % 4], axis=1)
    people = {"identity_id": np.arange(IMAGES), "label": [f"p{row}" for row in range(IMAGES)]}
    write_code_table(folder, codes, CodeShape(3, 4), pa.table(people | {"num_samples": np.ones(IMAGES, np.int32)}))
    return folder


def make_job(
    files: Path, store: Path, settings_of_training: Mapping[str, object] = MappingProxyType({}), **changes: object
) -> TrainingJob:
    settings: dict[str, object] = {"backbone": "iresnet_tiny", "batch_size": BATCH, "epochs": EPOCHS}
    settings |= {"learning_rate": 1e-5, **settings_of_training}
    given = {
        "config": TrainingConfig.model_validate(settings),
        "seed": 3,
        "device": "cpu",
        "workers": 1,
        "shards": [str(files / "a.arrow")],
        "held_out": [],
        "codes": str(files / "codes.duckdb"),
        "code_vectors": str(files / "vectors.safetensors"),
        "store": str(store),
        "checkpoints": "checkpoints/training/test",
        "checkpoint_seconds": 1e9,
        "checkpoint_steps": 3,
        "checkpoints_kept": 2,
        "compile": False,
        "gradient_checkpointing": False,
    }
    return TrainingJob.model_validate(given | changes)


def result(job: TrainingJob) -> dict[str, Tensor]:
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    assert checkpoint.state.step == IMAGES // BATCH * job.config.epochs
    return {name: tensor for file in checkpoint.names() for name, tensor in load_file(checkpoint.path(file)).items()}


@pytest.fixture(scope="module")
def undisturbed(
    one_thread: None, files: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Tensor], list[float]]:
    """Weights and losses of a training that nobody disturbs."""
    job = make_job(files, tmp_path_factory.mktemp("undisturbed"))
    reports = list(run_job(job, ALONE))
    assert [report.step for report in reports] == list(range(1, STEPS + 1))
    return result(job), [report.metrics["loss"] for report in reports]


def start(job: TrainingJob, folder: Path, processes: int, seen: str, kill_at: int = -1) -> subprocess.Popen[str]:
    (folder / "spy.py").write_text(SPY)
    (folder / "job.json").write_text(job.model_dump_json())
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "spy", "job.json"]
    paths = f"{folder}{os.pathsep}{PROJECT}"
    told = {"SEEN": str(folder / seen), "KILL_AT": str(kill_at)}
    environment = {**os.environ, **told, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def finish(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """What it tells until it ends well."""
    said, _ = process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def seen_labels(path: Path) -> list[tuple[int, list[int]]]:
    return [(step, labels) for step, labels in map(json.loads, path.read_text().splitlines())]


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), pytest.param(2, 1, marks=slow)])
def test_killed_at_a_random_step_it_ends_where_it_would_have(
    files: Path, tmp_path: Path, undisturbed: tuple[dict[str, Tensor], list[float]], before: int, after: int
) -> None:
    job = make_job(files, tmp_path / "store")
    killed_at = random.randrange(5, STEPS - 2)
    print(f"killed at step {killed_at}")  # noqa: T201 - pytest shows it with a failure
    process = start(job, tmp_path, before, "before.jsonl", killed_at)
    process.communicate()
    assert process.returncode != 0
    resumed_at = killed_at // 3 * 3

    told = finish(start(job, tmp_path, after, "after.jsonl"))
    seen = [pair for pair in seen_labels(tmp_path / "before.jsonl") if pair[0] < resumed_at]
    rest = seen_labels(tmp_path / "after.jsonl")
    assert min(step for step, _ in rest) == resumed_at
    for epoch in range(EPOCHS):
        there = [label for step, labels in seen + rest if step * BATCH // IMAGES == epoch for label in labels]
        assert sorted(there) == list(range(IMAGES)), f"epoch {epoch}"
    assert [report["step"] for report in told] == list(range(1, STEPS + 1)), "what came before the kill is told again"
    losses = [report["metrics"]["loss"] for report in told]
    assert losses == pytest.approx(undisturbed[1], rel=0 if before == after == 1 else 2e-5)
    assert_same_weights(result(job), undisturbed[0], job, exactly=before == after == 1)


def assert_same_weights(
    found: dict[str, Tensor], expected: dict[str, Tensor], job: TrainingJob, *, exactly: bool
) -> None:
    """Bit for bit, or after the same way: the difference is a small part of the way from the first weights."""
    assert found.keys() == expected.keys()
    if exactly:
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
        return
    first = prepare(job, ALONE).state
    start = dict([*first.model.named_parameters(), *first.head.named_parameters()])
    if first.head.sharded:
        start["head.safetensorsweight_MD"] = start.pop("weight_MD")
    way = sum(float((expected[name] - parameter.detach()).square().sum()) for name, parameter in start.items())
    apart = sum(float((expected[name] - found[name]).square().sum()) for name in start)
    assert apart < 0.01**2 * way


@pytest.mark.slow
def test_rows_of_a_shared_classifier_are_found_again_by_another_number_of_processes(
    files: Path, tmp_path: Path
) -> None:
    settings = {"head": "cosface", "scale": 8}
    undisturbed = make_job(files, tmp_path / "undisturbed", settings)
    losses = [report.metrics["loss"] for report in run_job(undisturbed, ALONE)]
    job = make_job(files, tmp_path / "store", settings)
    start(job, tmp_path, 2, "before.jsonl", 7).communicate()
    shards = [path.name for path in (tmp_path / "store").rglob("rows-*")]
    assert sorted(set(shards)) == ["rows-00000.safetensors", "rows-00001.safetensors"]
    assert [report.metrics["loss"] for report in run_job(job, ALONE)] == pytest.approx(losses, rel=2e-5)
    assert_same_weights(result(job), result(undisturbed), job, exactly=False)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_sampled_rows_are_carried_on_bit_for_bit(files: Path, tmp_path: Path, optimizer: str) -> None:
    settings = {"head": "partial_fc", "sample_rate": 0.4, "optimizer": optimizer}
    undisturbed, job = make_job(files, tmp_path / "a", settings), make_job(files, tmp_path / "b", settings)
    list(run_job(undisturbed, ALONE))
    steps = run_job(job, ALONE)
    while next(steps).step < 7:
        pass
    steps.close()
    list(run_job(job, ALONE))
    assert_same_weights(result(job), result(undisturbed), job, exactly=True)


def test_a_consumer_that_leaves_finds_a_checkpoint_of_the_last_step(
    files: Path, tmp_path: Path, undisturbed: tuple[dict[str, Tensor], list[float]]
) -> None:
    job = make_job(files, tmp_path, checkpoint_steps=None)
    steps = run_job(job, ALONE)
    for report in steps:
        if report.step == 7:
            break
    steps.close()
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    assert checkpoint.state.step == 7
    list(run_job(job, ALONE))
    assert_same_weights(result(job), undisturbed[0], job, exactly=True)


def raise_interrupt_at(step: int) -> Callable[..., None]:
    """Something to call once in every step, which interrupts that one, counted from 1."""
    calls = count(1)

    def call(*_: object) -> None:
        if next(calls) == step:
            signal.raise_signal(signal.SIGINT)

    return call


def in_the_forward_pass(call: Callable[..., None]) -> Any:
    """After batch normalisation has learned from the batch."""
    return register_module_forward_hook(lambda module, *_: call() if isinstance(module, nn.BatchNorm1d) else None)


@pytest.mark.parametrize(
    ("place", "settings", "reached"),
    [
        (in_the_forward_pass, {}, 6),
        (in_the_forward_pass, {"head": "partial_fc", "sample_rate": 0.4}, 6),
        (register_optimizer_step_pre_hook, {}, 7),
    ],
    ids=["in the forward pass", "with rows lent to the optimizer", "in the optimizer's step"],
)
def test_an_interrupt_in_the_middle_of_a_step_leaves_a_checkpoint_from_which_it_ends_where_it_would_have(
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[..., Any],
    settings: dict[str, object],
    reached: int,
) -> None:
    short = {"epochs": 2, **settings}
    undisturbed, job = (make_job(files, tmp_path / name, short, checkpoint_steps=None) for name in "ab")
    list(run_job(undisturbed, ALONE))
    monkeypatch.setattr(training, "MOST_REPORTS", 1)
    hook = place(raise_interrupt_at(7))
    with pytest.raises(KeyboardInterrupt):
        list(run_job(job, ALONE))
    hook.remove()
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    assert checkpoint.state.step == reached
    list(run_job(job, ALONE))
    assert_same_weights(result(job), result(undisturbed), job, exactly=True)


def test_whoever_is_told_to_stop_stops_after_the_step_and_not_after_the_next_report(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MOST_REPORTS", 1)
    job, asked = make_job(files, tmp_path, checkpoint_steps=None), count(1)
    assert [report.step for report in run_job(job, ALONE, lambda: next(asked) == 6)] == [4]
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    assert (checkpoint.state.step, checkpoint.state.values["steps"]) == (6, STEPS)


def test_the_figures_of_a_skipped_step_are_told_again_as_they_were(files: Path, tmp_path: Path) -> None:
    job = make_job(files, tmp_path)
    overflow = register_module_forward_pre_hook(lambda _, given: (given[0] * float("inf"), *given[1:]))
    steps = run_job(job, ALONE)
    skipped = next(steps)
    overflow.remove()
    next(steps)
    steps.close()
    assert not math.isfinite(skipped.metrics["loss"])
    assert str(next(run_job(job, ALONE))) == str(skipped)


def test_only_the_newest_few_are_kept_and_a_damaged_one_is_passed_over(
    files: Path, tmp_path: Path, undisturbed: tuple[dict[str, Tensor], list[float]], caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(files, tmp_path)
    list(run_job(job, ALONE))
    folders = sorted((tmp_path / job.checkpoints).iterdir())
    assert [int(folder.name.split("-")[0]) for folder in folders] == [18, 20]
    weights = folders[-1] / BACKBONE
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    newest = open_checkpoints(job).newest()
    assert newest is not None
    assert newest.state.step == 18
    assert "damaged and passed over" in caplog.text
    list(run_job(job, ALONE))
    assert_same_weights(result(job), undisturbed[0], job, exactly=True)


def test_a_checkpoint_without_its_state_does_not_count(files: Path, tmp_path: Path) -> None:
    job = make_job(files, tmp_path)
    list(run_job(job, ALONE))
    for state in (tmp_path / job.checkpoints).glob("*/state.json"):
        state.unlink()
    assert open_checkpoints(job).newest() is None


def test_checkpoints_hold_no_pickle(files: Path, tmp_path: Path) -> None:
    job = make_job(files, tmp_path)
    list(run_job(job, ALONE))
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".safetensors", ".json"}
