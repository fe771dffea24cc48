"""Training as a job: killed and taken up again, on one process and on two, it is the training it would have been."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from gif_core.training import open_checkpoints, run_job
from schemas.training import TrainingJob
from tests.gif_core.training.training_jobs import (
    ALONE,
    BATCH,
    EPOCHS,
    IMAGES,
    PROJECT,
    STEPS,
    assert_same_weights,
    files,
    make_job,
    result,
    undisturbed,
)

__all__ = ["files", "undisturbed"]
pytestmark = pytest.mark.usefixtures("one_thread")
slow = pytest.mark.slow
SPY = """
import json, os, signal, sys, time
from pathlib import Path
from gif_core.training import step as training_step
from gif_core.training import worker as training_worker
take = training_step.Stepper.take

def spy(self, batch):
    step = self.state.step
    if step == int(os.environ["KILL_AT"]) and self.group.leads:
        os.kill(os.getpid(), signal.SIGKILL)
    take(self, batch)
    with open(os.environ["SEEN"], "a") as file:
        file.write(json.dumps([step, batch.labels_B.tolist()]) + "\\n")

training_step.Stepper.take = spy
training_worker.WORKER.main()

def is_of_group(task):
    try:
        return "gloo" in (task / "comm").read_text()
    except OSError:
        return False

end = time.monotonic() + 5
while any(map(is_of_group, Path("/proc/self/task").iterdir())):
    if time.monotonic() > end:
        sys.exit("threads of the group outlive it, and may abort the process as it ends")
"""


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
