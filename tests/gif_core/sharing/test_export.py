from pathlib import Path

import pytest
import torch
from torch import nn

from gif_core.backbones import Backbone, build_backbone, open_foreign_backbone
from gif_core.backbones.vit import VisionTransformer
from gif_core.sharing import export as exporting
from gif_core.sharing import export_onnx, export_torch
from gif_core.sharing.export import ExportError, OnnxNetwork, largest_difference
from tests.gif_core.sharing.onnx_files import check_insightface_takes


def make_model(name: str) -> Backbone:
    torch.manual_seed(0)
    if name == "vit":
        return VisionTransformer(16, patch=28, width=24, depth=2, heads=3)
    return build_backbone(name, 16)


@pytest.mark.parametrize("name", ["iresnet_tiny", pytest.param("mobilefacenet", marks=pytest.mark.slow), "vit"])
def test_onnx_gives_the_features_of_the_model_for_any_number_of_images(tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    model = make_model(name)
    difference = export_onnx(model, tmp_path / "backbone.onnx")
    assert difference is not None
    assert difference < 1e-4
    other = OnnxNetwork(tmp_path / "backbone.onnx")
    images = torch.rand(5, 3, 112, 112)
    with torch.inference_mode():
        features = model(images)
    assert (other(images) - features).abs().max() < 1e-4 * features.abs().max()
    assert [file.name for file in tmp_path.iterdir()] == ["backbone.onnx"]
    check_insightface_takes(tmp_path / "backbone.onnx")


def test_an_export_that_differs_is_refused_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    (tmp_path / "backbone.onnx").write_bytes(b"old")
    monkeypatch.setattr(exporting, "TOLERANCE", 0.0)
    with pytest.raises(ExportError, match=r"features that differ by .*, above 0"):
        export_onnx(make_model("iresnet_tiny"), tmp_path / "backbone.onnx")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]


def test_differences_of_any_image_are_seen() -> None:
    model = make_model("iresnet_tiny").eval()

    def other(images: torch.Tensor) -> torch.Tensor:
        features = model(images)
        features[-1, 3] += 0.5 * features[-1].norm()
        return features

    assert largest_difference(model, model) == 0
    assert largest_difference(model, other) > 0.1


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"ONNX needs onnx and onnxscript: .* -m pip install .* onnxscript"):
        export_onnx(nn.Identity(), tmp_path / "backbone.onnx")
    assert not list(tmp_path.iterdir())


def test_a_torch_file_is_a_plain_state_dict(tmp_path: Path) -> None:
    model = make_model("iresnet_tiny")
    export_torch(model, tmp_path / "backbone.pth")
    weights = torch.load(tmp_path / "backbone.pth", weights_only=True)
    assert list(weights) == list(model.state_dict())
    again = open_foreign_backbone("iresnet_tiny", tmp_path / "backbone.pth")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
