"""What is verified while a network is trained: held-out identities, and files of pairs."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gif_core.backbones import build_backbone
from gif_core.protocols import Pairs
from gif_core.protocols.sets import write_synthetic_bin
from gif_core.synthetic import draw_jpeg
from gif_core.training.validation import prepare_validation, thin
from schemas.evaluation import PairFileSet
from schemas.training import TrainingConfig, TrainingJob

CPU = torch.device("cpu")
PAIRS = 40


@pytest.fixture(scope="module")
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_backbone("iresnet_tiny", 16)


@pytest.fixture(scope="module")
def pair_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_bin(tmp_path_factory.mktemp("pairs"), identities=12, pairs=60, seed=1)


@pytest.fixture
def held_out(tmp_path: Path, write_shard: Callable[..., Path]) -> Callable[..., Path]:
    def write(identities: int, images: int) -> Path:
        rows = [
            (who, f"{who}/{each}.jpg", draw_jpeg(0, who, each)) for who in range(identities) for each in range(images)
        ]
        return write_shard(tmp_path / "held_out.arrow", rows, identities)

    return write


def make_job(*, held_out: Path | None = None, sets: tuple[PairFileSet, ...] = (), pairs: int = PAIRS) -> TrainingJob:
    given = {
        "config": TrainingConfig(backbone="iresnet_tiny", val_pairs=pairs),
        "held_out": [str(held_out)] if held_out else [],
        "val_sets": sets,
        "checkpoint_seconds": 600,
        "checkpoint_steps": None,
        "checkpoints_kept": 1,
        "workers": 1,
        "seed": 0,
    }
    names = ("device", "codes", "code_vectors", "store", "checkpoints")
    switches = {"compile": False, "gradient_checkpointing": False, "shards": []}
    return TrainingJob.model_validate(given | switches | dict.fromkeys(names, "unused"))


def test_held_out_identities_and_files_of_pairs_are_verified_each_by_its_name(
    network: nn.Module, pair_file: Path, held_out: Callable[..., Path]
) -> None:
    job = make_job(held_out=held_out(8, 4), sets=(PairFileSet(path=str(pair_file), label="my LFW"),))
    look = prepare_validation(job, CPU)
    assert look is not None
    metrics = look(network)
    assert list(metrics) == ["val_accuracy", "val_accuracy/my LFW"]
    assert all(0.4 < accuracy <= 1 for accuracy in metrics.values())
    assert network.training, "the network goes on as it was"


def test_nothing_is_verified_when_there_is_nobody_or_no_pair_is_asked_for(pair_file: Path) -> None:
    assert prepare_validation(make_job(), CPU) is None
    assert prepare_validation(make_job(sets=(PairFileSet(path=str(pair_file)),), pairs=0), CPU) is None


@pytest.mark.parametrize(("identities", "images"), [(1, 4), (5, 1), (3, 2)])
def test_too_few_identities_for_pairs_are_told_and_do_not_keep_a_training_from_its_first_step(
    held_out: Callable[..., Path], caplog: pytest.LogCaptureFixture, identities: int, images: int
) -> None:
    with caplog.at_level(logging.WARNING):
        assert prepare_validation(make_job(held_out=held_out(identities, images)), CPU) is None
    assert "no val_accuracy during training" in caplog.text
    assert "training.val_pairs" in caplog.text


def test_a_file_that_cannot_be_read_is_told_and_the_others_are_verified(
    network: nn.Module, pair_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "damaged.bin").write_bytes(pair_file.read_bytes()[:1000])
    sets = (PairFileSet(path=str(tmp_path / "damaged.bin")), PairFileSet(path=str(pair_file), label="whole"))
    look = prepare_validation(make_job(sets=sets), CPU)
    assert look is not None
    assert list(look(network)) == ["val_accuracy/whole"]
    assert "no val_accuracy/damaged during training" in caplog.text


def test_an_image_that_cannot_be_decoded_is_told_and_the_other_sets_are_verified(
    network: nn.Module, pair_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = bytearray(pair_file.read_bytes())
    start = content.index(b"\xff\xd8\xff")
    content[start : start + 200] = bytes(200)
    (tmp_path / "broken.bin").write_bytes(content)
    sets = (PairFileSet(path=str(tmp_path / "broken.bin")), PairFileSet(path=str(pair_file), label="whole"))
    look = prepare_validation(make_job(sets=sets, pairs=60), CPU)
    assert look is not None
    assert list(look(network)) == ["val_accuracy/whole"]
    assert "no val_accuracy/broken during training" in caplog.text


def test_a_file_that_is_gone_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert prepare_validation(make_job(sets=(PairFileSet(path=str(tmp_path / "gone.bin")),)), CPU) is None
    assert "no val_accuracy/gone during training" in caplog.text


def test_features_that_are_not_finite_have_no_accuracy(pair_file: Path) -> None:
    blown_up = build_backbone("iresnet_tiny", 16)
    with torch.no_grad():
        next(blown_up.parameters()).fill_(torch.nan)
    look = prepare_validation(make_job(sets=(PairFileSet(path=str(pair_file)),)), CPU)
    assert look is not None
    assert look(blown_up) == {}


def test_thinned_pairs_are_spread_evenly_over_those_of_their_kind_in_their_order() -> None:
    same = np.array([True] * 6 + [False] * 3 + [True] * 6)
    pairs = Pairs(np.arange(15), np.arange(15) + 100, same)
    few = thin(pairs, 4)
    assert few.left.tolist() == [0, 3, 6, 7, 8, 9, 12]
    assert few.right.tolist() == [100, 103, 106, 107, 108, 109, 112]
    assert few.same.tolist() == same[few.left].tolist()
    assert thin(pairs, 100).left.tolist() == pairs.left.tolist()
