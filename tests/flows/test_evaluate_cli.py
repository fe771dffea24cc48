"""`gif evaluate`: weights of others on benchmarks in their own formats, without training."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gif_core.backbones import build_backbone, embed_images
from gif_core.protocols import pair_distances, verify_distances
from gif_core.protocols.sets import open_pair_set, write_synthetic_bin, write_synthetic_ijb
from schemas.evaluation import PairFileSet
from tests.tinyface_files import write_tinyface

Gif = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published backbone as a state dict, and benchmarks in the layout that presets expect."""
    folder = tmp_path_factory.mktemp("benchmarks")
    torch.manual_seed(0)
    torch.save(build_backbone("iresnet_tiny", 32).state_dict(), folder / "backbone.pth")
    write_synthetic_bin(folder, identities=10, pairs=40, seed=0)
    (folder / "pairs.bin").rename(folder / "lfw.bin")
    write_synthetic_ijb(folder / "IJBC", identities=6, seed=0)
    return folder


def accuracy(folder: Path, *, flip: bool) -> float:
    """The accuracy of the same weights, computed step by step."""
    given = open_pair_set(PairFileSet(path=str(folder / "lfw.bin")), folder)
    model = build_backbone("iresnet_tiny", 32)
    model.load_state_dict(torch.load(folder / "backbone.pth"))
    rows, left, right = given.pairs.needed_images()
    chunks = embed_images(model.eval(), given.images, rows, flip=flip, device=torch.device("cpu"), batch_size=16)
    return verify_distances(pair_distances(np.concatenate(list(chunks)), left, right), given.pairs.same).accuracy


def test_scores_in_a_missing_folder_are_refused_before_the_weights_are_read(tmp_path: Path, run_gif: Gif) -> None:
    (tmp_path / "backbone.pth").write_bytes(b"not weights")
    shown = run_gif("evaluate", "--weights", str(tmp_path / "backbone.pth"), "--out", "missing/scores.json", code=2)
    assert "--out missing/scores.json: there is no folder missing" in shown


def test_published_weights_get_their_scores_with_and_without_the_mirror(
    folder: Path, tmp_path: Path, run_gif: Gif
) -> None:
    out = tmp_path / "scores.json"
    weights = ("--weights", str(folder / "backbone.pth"), "--backbone", "iresnet_tiny")
    shown = run_gif("evaluate", *weights, "--data", str(folder), "--out", str(out), "--device", "cpu")
    found = json.loads(out.read_text())["sets"]
    assert set(found) == {"LFW", "IJB-C"}, "those of the preset that are there"
    systems = found["LFW"]["systems"]
    assert systems["image and mirror"]["accuracy"] == pytest.approx(accuracy(folder, flip=True))
    assert systems["image"]["accuracy"] == pytest.approx(accuracy(folder, flip=False))
    assert found["LFW"]["system_flags"] == {"image and mirror": {"flip": True}, "image": {"flip": False}}
    assert {"tar_at_far_0.0001", "rank_1"} <= set(found["IJB-C"]["systems"]["model"])
    assert f"{100 * systems['image']['accuracy']:.2f}" in shown


def test_sets_are_named_by_their_addresses(folder: Path, tmp_path: Path, run_gif: Gif) -> None:
    weights = ("--weights", str(folder / "backbone.pth"), "--backbone", "iresnet_tiny")
    tiny = write_tinyface(tmp_path, identities=2, distractors=1)
    shown = run_gif("evaluate", *weights, "--sets", f"{folder / 'lfw.bin'},{tiny}", "--device", "cpu")
    assert "LFW" in shown
    assert "TinyFace" in shown
    assert "IJB-C" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sets", "nowhere.bin"), "there is no file or folder nowhere.bin"),
        (("--sets", "photos"), "name a .bin or .parquet file of pairs"),
        (("--data", "nowhere"), "give --sets, or the folder of the benchmarks with --data"),
        (("--backbone", "iresnet18"), "(--backbone names the architecture, here iresnet18)"),
        (("--backbone", "resnet"), "unknown backbone 'resnet'"),
    ],
)
def test_mistakes_are_said_in_a_sentence(folder: Path, run_gif: Gif, arguments: tuple[str, ...], message: str) -> None:
    sets = () if "--sets" in arguments or "--data" in arguments else ("--sets", str(folder / "lfw.bin"))
    weights = ("--weights", str(folder / "backbone.pth"))
    assert message in " ".join(run_gif("evaluate", *weights, *arguments, *sets, code=2).split())
