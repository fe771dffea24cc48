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
from schemas.files import BACKBONE_FILE, CODE_VECTORS_FILE, HEAD_FILE
from schemas.training import TrainingJob, TrainingStart
from tests.gif_core.training.training_jobs import ALONE, files, make_job

__all__ = ["files"]
pytestmark = pytest.mark.usefixtures("one_thread")
WEIGHT = "weight_MD"
FILES = {"backbone": BACKBONE_FILE, "head": HEAD_FILE, "code_vectors": CODE_VECTORS_FILE}


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
    model = tmp_path / "model"
    load_weights(following, TrainingStart(backbone=str(model / BACKBONE_FILE), head=str(model / HEAD_FILE)))
    assert torch.equal(following.head.state_dict()[WEIGHT], head[WEIGHT])


def test_a_published_head_that_reads_codes_is_whole(files: Path, tmp_path: Path) -> None:
    job = make_job(files, tmp_path / "store", {"epochs": 1, "code_vectors": "mapped"})
    list(run_job(job, ALONE))
    head, learned = trained_head(job, tmp_path / "model"), load_trained(job).head.state_dict()
    assert head.keys() == learned.keys()
    assert all(torch.equal(head[name], tensor) for name, tensor in learned.items())


def test_code_vectors_that_learned_are_published_apart_and_carry_over_to_more_identities(
    files: Path, tmp_path: Path
) -> None:
    settings = {"epochs": 1, "code_vectors": "living", "row_rate": 0.5, "sample_negatives": 8}
    job = make_job(files, tmp_path / "store", settings)
    list(run_job(job, ALONE))
    head, learned = trained_head(job, tmp_path / "model"), load_trained(job).head.state_dict()
    assert not [name for name in head if name.startswith(("vectors.", "sample_negatives."))]
    vectors = load_file(tmp_path / "model" / CODE_VECTORS_FILE)["code_vectors"]
    assert torch.equal(vectors, learned["vectors.weight_MD"])
    start = load_file(files / "vectors.safetensors")["code_vectors"]
    assert (vectors != start).any(dim=1).all(), "all were in use"
    paths = {name: str(tmp_path / "model" / file) for name, file in FILES.items()}
    following = prepare(job, ALONE).state
    load_weights(following, TrainingStart(**paths))
    assert torch.equal(following.head.state_dict()["vectors.weight_MD"], vectors)
    assert not following.head.state_dict()["vectors.squares_M"].any(), "their optimizer begins anew"


def load_trained(job: TrainingJob) -> TrainingState:
    training, checkpoint = prepare(job, ALONE), open_checkpoints(job).newest()
    assert checkpoint is not None
    load_state(training.state, checkpoint)
    return training.state


def test_rows_of_several_files_are_joined_in_order_and_others_are_not_read(tmp_path: Path) -> None:
    rows = torch.arange(10.0).reshape(5, 2)
    paths = [tmp_path / "b", tmp_path / "a"]
    for path, (first, end) in zip(paths, [(3, 5), (0, 3)], strict=True):
        save_tensors({"x.head": rows[first:end], "x.other": -rows[first:end]}, path, {FIRST_ROW: str(first)})
    assert read_rows(paths, 1, 4).keys() == {"x.head", "x.other"}
    found = read_rows(paths, 1, 4, ".head")
    assert found.keys() == {"x.head"}
    assert torch.equal(found["x.head"], rows[1:4])
    assert torch.equal(read_rows(paths, 3, 9, ".other")["x.other"], -rows[3:])
