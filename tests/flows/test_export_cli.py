"""`gif export` on a small store that is written here, so that no run is needed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gif_core import sharing
from gif_core.artifacts import ArtifactStore, begin_run, move_tag, save_run
from gif_core.backbones import build_backbone
from gif_core.retraining import promote
from gif_core.synthetic import draw_jpeg
from schemas.artifacts import ArtifactRef, StageRecord
from schemas.errors import GifError
from schemas.run import RunConfig
from schemas.stages import StageName

Gif = Callable[..., str]


def publish_model(store: ArtifactStore, key: str, model: nn.Module) -> ArtifactRef:
    with store.draft(store.ref("training", key), {}, {}) as draft:
        save_file(model.state_dict(), draft.folder / "backbone.safetensors")
        (draft.folder / "model.json").write_text(json.dumps({"backbone": "iresnet_tiny", "embedding_dim": 16}))
        return move_tag(store, "latest", store.publish(draft)).ref


@pytest.fixture
def weights(tmp_path: Path) -> dict[str, torch.Tensor]:
    """A store with a model and something else."""
    store, model = ArtifactStore(str(tmp_path / "store")), build_backbone("iresnet_tiny", 16)
    publish_model(store, "1" * 64, model)
    with store.draft(store.ref("separation", "2" * 64), {}, {}) as draft:
        (draft.folder / "a.txt").write_text("a")
        store.publish(draft)
    return model.state_dict()


@pytest.fixture
def gif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_gif: Gif) -> Gif:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))
    return run_gif


def exported(path: Path, weights: dict[str, torch.Tensor]) -> bool:
    found = torch.load(path, weights_only=True)
    return all(torch.equal(value, found[name]) for name, value in weights.items())


def test_a_tagged_model_is_exported_for_torch(gif: Gif, tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    for name in ("latest", "training@latest"):
        assert "my.pth: " in gif("export", "torch", "--model", name, "--out", "my.pth")
        assert exported(tmp_path / "my.pth", weights)


def test_the_champion_is_exported_unless_another_model_is_named(
    gif: Gif, tmp_path: Path, weights: dict[str, torch.Tensor]
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    champion, out = store.open(store.ref("training", "1" * 64)), ("--out", "my.pth")
    newer = publish_model(store, "3" * 64, build_backbone("iresnet_tiny", 16))
    stages: dict[StageName, StageRecord] = {"training": StageRecord(key=newer.key, action="computed", seconds=1)}
    run = save_run(store, begin_run(store, RunConfig()), state="completed", stages=stages).run_id
    gif("export", "torch", *out)
    assert not exported(tmp_path / "my.pth", weights), "without a champion the newest run's"
    promote(store, champion, because="in use")
    gif("export", "torch", *out)
    assert exported(tmp_path / "my.pth", weights), "whatever was trained last"
    for named in ("333", "latest", run):
        gif("export", "torch", "--model", named, *out)
        assert not exported(tmp_path / "my.pth", weights)


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_which_model_is_exported_is_said(
    gif: Gif, tmp_path: Path, weights: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    promote(store, store.open(store.ref("training", "1" * 64)), because="in use")

    def fail(*_: object) -> None:
        raise GifError("not now")

    monkeypatch.setattr(sharing, f"export_{format}", fail)
    assert "model: training/111111111111, the champion" in gif("export", format, code=2)


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_a_folder_that_is_not_there_is_told_before_the_model_is_looked_for(
    gif: Gif, tmp_path: Path, format: str
) -> None:
    printed = gif("export", format, "--out", "missing/my.file", code=2)
    assert "--out missing/my.file: there is no folder missing; make it first (mkdir -p missing)" in printed
    assert not (tmp_path / "store").exists()


def test_an_exported_model_can_be_the_encoder(gif: Gif, tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    (tmp_path / "face.jpg").write_bytes(draw_jpeg(0, 1, 0))
    gif("export", "torch", "--model", "latest", "--out", "my.pth")
    encoder = ("--encoder", "backbone", "--model", "iresnet_tiny", "--pretrained", "my.pth")
    assert "first of 16 numbers" in gif("encode", "face.jpg", *encoder)


def test_a_model_by_its_key_is_exported_as_onnx(gif: Gif, tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    assert "onnxruntime: " in gif("export", "onnx", "--model", "training/111", "--out", "my.onnx")
    assert (tmp_path / "my.onnx").stat().st_size > 4 * sum(value.numel() for value in weights.values())


def test_help_says_what_onnx_needs(gif: Gif) -> None:
    assert "pip install onnx onnxruntime onnxscript" in gif("export", "onnx", "--help")


def test_what_is_no_model_is_refused(gif: Gif, tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    printed = gif("export", "torch", "--model", "separation/222", "--out", "my.pth", code=2)
    assert "is not a trained model: name a tag such as champion, training/KEY" in printed
    assert not (tmp_path / "my.pth").exists()
