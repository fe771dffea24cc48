"""`gif export` on a small store that is written here, so that no run is needed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.tags import move_tag
from gif_core.backbones.building import build_backbone
from gif_core.synthetic import draw_jpeg

Gif = Callable[..., str]


@pytest.fixture
def weights(tmp_path: Path) -> dict[str, torch.Tensor]:
    """A store with a model and something else."""
    store, model = ArtifactStore(str(tmp_path / "store")), build_backbone("iresnet_tiny", 16)
    with store.draft(store.ref("training", "1" * 64), {}, {}) as draft:
        save_file(model.state_dict(), draft.folder / "backbone.safetensors")
        (draft.folder / "model.json").write_text(json.dumps({"backbone": "iresnet_tiny", "embedding_dim": 16}))
        move_tag(store, "latest", store.publish(draft))
    with store.draft(store.ref("separation", "2" * 64), {}, {}) as draft:
        (draft.folder / "a.txt").write_text("a")
        store.publish(draft)
    return model.state_dict()


@pytest.fixture
def gif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_gif: Gif) -> Gif:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))
    return run_gif


def test_the_latest_model_is_exported_for_torch(gif: Gif, tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    assert "my.pth: " in gif("export", "torch", "--out", "my.pth")
    found = torch.load(tmp_path / "my.pth", weights_only=True)
    assert all(torch.equal(value, found[name]) for name, value in weights.items())


def test_an_exported_model_can_be_the_encoder(gif: Gif, tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    (tmp_path / "face.jpg").write_bytes(draw_jpeg(0, 1, 0))
    gif("export", "torch", "--out", "my.pth")
    encoder = ("--encoder", "backbone", "--model", "iresnet_tiny", "--pretrained", "my.pth")
    assert "first of 16 numbers" in gif("encode", "face.jpg", *encoder)


def test_a_model_by_its_key_is_exported_as_onnx(gif: Gif, tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    assert "onnxruntime: " in gif("export", "onnx", "training/111", "--out", "my.onnx")
    assert (tmp_path / "my.onnx").stat().st_size > 4 * sum(value.numel() for value in weights.values())


def test_what_is_no_model_is_refused(gif: Gif, tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    printed = gif("export", "torch", "222", "--out", "my.pth", code=2)
    assert "is not a trained model: name an artifact of the stage training" in printed
    assert not (tmp_path / "my.pth").exists()
