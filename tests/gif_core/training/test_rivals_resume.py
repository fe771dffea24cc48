"""Heads with a state of their own resume as if nothing had happened, also on another number of processes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gif_core.training import load_backbone, open_checkpoints, run_job, save_model
from schemas.files import BACKBONE_FILE, HEAD_FILE, MODEL_FILE
from schemas.training import TrainingJob
from tests.gif_core.training.test_published_heads import load_trained
from tests.gif_core.training.test_worker import finish, start
from tests.gif_core.training.training_jobs import ALONE, DIM, IMAGES, assert_same_weights, files, make_job, result

__all__ = ["files"]
pytestmark = pytest.mark.usefixtures("one_thread")
slow = pytest.mark.slow
HEADS: dict[str, dict[str, object]] = {
    "curricularface": {"scale": 8, "sample_rate": 0.5},
    "magface": {"scale": 8},
    "broadface": {"scale": 8, "queue_size": 40},
    "groupface": {"scale": 8, "groups": 4},
    "dul": {"scale": 8},
    "virtual_fc": {"scale": 8, "anchors": 20, "images_per_identity": 4},
    "dcq": {"scale": 8, "queue_size": 40, "average_decay": 0.9},
    "f2c": {"scale": 8, "queue_size": 20, "average_decay": 0.9},
}
PUBLISHED = {
    "curricularface": {"weight_MD", "margin.progress"},
    "groupface": {"weight_MD", "mean_K"},
    "dcq": set(),
    "f2c": set(),
}
QUICK = ("dcq", "f2c")
"""Each kind of state: groups of images, an average of the network, a queue, a pool."""
RANDOM = ("curricularface", "dul")
"""What is drawn depends on the number of processes."""


DESCRIPTION = {"backbone": "iresnet_tiny", "embedding_dim": DIM, "settings": {"groups": 4}}


def job_of(name: str, files: Path, store: Path) -> TrainingJob:
    return make_job(files, store, {"head": name, "epochs": 2, **HEADS[name]})


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else slow) for name in HEADS])
def test_a_head_that_is_left_and_resumed_ends_bit_for_bit_where_it_would_have(
    name: str, files: Path, tmp_path: Path
) -> None:
    undisturbed, job = job_of(name, files, tmp_path / "a"), job_of(name, files, tmp_path / "b")
    list(run_job(undisturbed, ALONE))
    steps = run_job(job, ALONE)
    while next(steps).step < 6:
        pass
    steps.close()
    list(run_job(job, ALONE))
    assert_same_weights(result(job), result(undisturbed), job, exactly=True)
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    save_model(tmp_path, checkpoint, DESCRIPTION | {"head": name, "network": "average" if name == "dcq" else "trained"})
    published = load_file(tmp_path / HEAD_FILE).keys()
    assert published == PUBLISHED.get(name, {"weight_MD"}), "neither queues nor the optimizer's state"
    model = load_backbone(tmp_path / BACKBONE_FILE, tmp_path / MODEL_FILE)
    assert model(torch.randn(2, 3, 112, 112)).shape == (2, DIM)
    state = load_trained(job)
    expected = state.average if name == "dcq" else state.model
    assert expected is state.published, "the network that its authors evaluate"
    found = model.state_dict()
    assert all(torch.equal(found[key], tensor) for key, tensor in state.published.state_dict().items())


@slow
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("name", [name for name in HEADS if name not in RANDOM])
def test_a_head_that_is_killed_goes_on_with_another_number_of_processes(
    name: str, before: int, after: int, files: Path, tmp_path: Path
) -> None:
    undisturbed, job = job_of(name, files, tmp_path / "a"), job_of(name, files, tmp_path / "b")
    losses = [report.metrics["loss"] for report in run_job(undisturbed, ALONE)]
    start(job, tmp_path, before, "before.jsonl", 5).communicate()
    told = finish(start(job, tmp_path, after, "after.jsonl"))
    assert len(told) == 2 * IMAGES // job.config.batch_size
    assert [report["metrics"]["loss"] for report in told] == pytest.approx(losses, rel=2e-4)
