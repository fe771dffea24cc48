"""Heads with a state of their own resume as if nothing had happened, also on another number of processes."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from gif_core.training import open_checkpoints, run_job, save_model
from schemas.files import HEAD_FILE
from schemas.training import TrainingJob
from tests.gif_core.training.test_worker import finish, start
from tests.gif_core.training.training_jobs import ALONE, IMAGES, assert_same_weights, files, make_job, result

__all__ = ["files"]
pytestmark = pytest.mark.usefixtures("one_thread")
HEADS: dict[str, dict[str, object]] = {
    "curricularface": {"scale": 8, "sample_rate": 0.5},
    "magface": {"scale": 8},
    "broadface": {"scale": 8, "queue_size": 40},
}
PUBLISHED = {"curricularface": {"weight_MD", "margin.progress"}, "magface": {"weight_MD"}, "broadface": {"weight_MD"}}


def job_of(name: str, files: Path, store: Path) -> TrainingJob:
    return make_job(files, store, {"head": name, "epochs": 2, **HEADS[name]})


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_is_left_and_resumed_ends_bit_for_bit_where_it_would_have(
    name: str, files: Path, tmp_path: Path
) -> None:
    undisturbed, job = job_of(name, files, tmp_path / "a"), job_of(name, files, tmp_path / "b")
    list(run_job(undisturbed, ALONE))
    steps = run_job(job, ALONE)
    while next(steps).step < 5:
        pass
    steps.close()
    list(run_job(job, ALONE))
    assert_same_weights(result(job), result(undisturbed), job, exactly=True)
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    save_model(tmp_path, checkpoint, {})
    assert load_file(tmp_path / HEAD_FILE).keys() == PUBLISHED[name], "neither queues nor the optimizer's state"


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("name", [name for name in HEADS if "sample_rate" not in HEADS[name]])
def test_a_head_that_is_killed_goes_on_with_another_number_of_processes(
    name: str, before: int, after: int, files: Path, tmp_path: Path
) -> None:
    """Which rows are sampled depends on the number of processes; all else does not."""
    undisturbed, job = job_of(name, files, tmp_path / "a"), job_of(name, files, tmp_path / "b")
    losses = [report.metrics["loss"] for report in run_job(undisturbed, ALONE)]
    start(job, tmp_path, before, "before.jsonl", 5).communicate()
    told = finish(start(job, tmp_path, after, "after.jsonl"))
    assert len(told) == 2 * IMAGES // job.config.batch_size
    assert [report["metrics"]["loss"] for report in told] == pytest.approx(losses, rel=2e-4)
