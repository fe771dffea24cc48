"""What is published of a head after its training."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save_file as save_tensors
from torch import Tensor

from gif_core.training import open_checkpoints, run_job, save_model
from gif_core.training.checkpoints import FIRST_ROW, load_state, load_weights, read_rows
from gif_core.training.step import TrainingState
from gif_core.training.worker import prepare
from schemas.files import BACKBONE_FILE, HEAD_FILE
from schemas.training import TrainingJob
from tests.gif_core.training.training_jobs import ALONE, files, make_job

__all__ = ["files"]
pytestmark = pytest.mark.usefixtures("one_thread")
WEIGHT = "weight_MD"


def trained_head(job: TrainingJob, folder: Path) -> dict[str, Tensor]:
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    folder.mkdir()
    save_model(folder, checkpoint, {})
    return load_file(folder / HEAD_FILE)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"head": "partial_fc", "sample_rate": 0.4, "optimizer": "sgd"}, {WEIGHT}),
        ({"head": "partial_fc", "sample_rate": 0.4, "optimizer": "adamw"}, {WEIGHT}),
        ({"head": "cosface"}, {WEIGHT}),
        ({"head": "adaface"}, {WEIGHT, "margin.mean", "margin.deviation"}),
    ],
    ids=["sampled with sgd", "sampled with adamw", "cosface", "adaface"],
)
def test_a_published_head_is_what_it_learned_and_nothing_of_the_optimizer(
    files: Path, tmp_path: Path, settings: dict[str, object], names: set[str]
) -> None:
    job = make_job(files, tmp_path / "store", {"epochs": 1, **settings})
    list(run_job(job, ALONE))
    head = trained_head(job, tmp_path / "model")
    assert head.keys() == names
    assert torch.equal(head[WEIGHT], load_trained(job).head.state_dict()[WEIGHT])
    following = prepare(job, ALONE).state
    load_weights(following, tmp_path / "model" / BACKBONE_FILE, tmp_path / "model" / HEAD_FILE)
    assert torch.equal(following.head.state_dict()[WEIGHT], head[WEIGHT])


def test_a_published_head_that_reads_codes_is_whole(files: Path, tmp_path: Path) -> None:
    job = make_job(files, tmp_path / "store", {"epochs": 1})
    list(run_job(job, ALONE))
    head, learned = trained_head(job, tmp_path / "model"), load_trained(job).head.state_dict()
    assert head.keys() == learned.keys()
    assert all(torch.equal(head[name], tensor) for name, tensor in learned.items())


def load_trained(job: TrainingJob) -> TrainingState:
    training, checkpoint = prepare(job, ALONE), open_checkpoints(job).newest()
    assert checkpoint is not None
    load_state(training.state, checkpoint)
    return training.state


def test_rows_of_several_files_are_joined_in_order_and_others_are_not_read(tmp_path: Path) -> None:
    rows = torch.arange(10.0).reshape(5, 2)
    paths = [tmp_path / "b", tmp_path / "a"]
    for path, (first, end) in zip(paths, [(3, 5), (0, 3)], strict=True):
        save_tensors({"head.x": rows[first:end], "other.x": -rows[first:end]}, path, {FIRST_ROW: str(first)})
    assert read_rows(paths, 1, 4).keys() == {"head.x", "other.x"}
    found = read_rows(paths, 1, 4, "head.")
    assert found.keys() == {"head.x"}
    assert torch.equal(found["head.x"], rows[1:4])
    assert torch.equal(read_rows(paths, 3, 9, "other.")["other.x"], -rows[3:])
