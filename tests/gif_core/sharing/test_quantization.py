"""INT8: calibrated and measured on the faces of the run, and readable by others."""

from pathlib import Path

import pytest
import torch

from gif_core.artifacts import ArtifactMissingError, ArtifactStore, find_model
from gif_core.recognition import Recognizer
from gif_core.sharing import export_folder, export_int8, open_own_faces, pull_folder
from gif_core.sharing.export import OnnxNetwork
from gif_core.sharing.quantization import verify_own_pairs
from gif_core.training import open_backbone
from tests.gif_core.sharing.onnx_files import check_insightface_takes
from tests.recognition_store import CPU, fill_store

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    folder = tmp_path_factory.mktemp("int8")
    fill_store(folder / "store")
    return ArtifactStore(str(folder / "store"))


@pytest.mark.slow
def test_int8_is_a_quarter_of_the_size_and_keeps_the_features(store: ArtifactStore, tmp_path: Path) -> None:
    found = find_model(store, "latest").artifact
    faces, model = open_own_faces(store, found), open_backbone(found, CPU)
    done = export_int8(model, faces, tmp_path / "small.onnx")
    assert done.bytes_after < 0.35 * done.bytes_before
    assert done.bytes_after == (tmp_path / "small.onnx").stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["small.onnx"]
    assert done.before == verify_own_pairs(model, faces)
    assert done.after == verify_own_pairs(OnnxNetwork(tmp_path / "small.onnx"), faces)
    images_BCHW = torch.from_numpy(faces.training.load(faces.rows[:8])).permute(0, 3, 1, 2).sub(127.5).div(127.5)
    with torch.inference_mode():
        exact_BD, small_BD = model(images_BCHW), OnnxNetwork(tmp_path / "small.onnx")(images_BCHW)
    assert torch.cosine_similarity(exact_BD, small_BD).min() > 0.95
    check_insightface_takes(tmp_path / "small.onnx")


def test_accuracy_is_measured_on_the_pairs_of_the_evaluation(store: ArtifactStore) -> None:
    found = find_model(store, "latest").artifact
    faces = open_own_faces(store, found)
    assert faces.held_out is not None
    known = Recognizer.load(store, "latest", "cpu").thresholds["held_out"]
    assert len(faces.held_out.pairs) == known.pairs
    assert verify_own_pairs(open_backbone(found, CPU), faces) == known.accuracy


def test_a_model_without_its_faces_cannot_be_calibrated_and_says_so(store: ArtifactStore, tmp_path: Path) -> None:
    export_folder(store, find_model(store, "latest").artifact, tmp_path / "shared", name="shared")
    other = ArtifactStore(str(tmp_path / "other"))
    pulled = pull_folder(other, tmp_path / "shared", "theirs")
    with pytest.raises(ArtifactMissingError, match="came without its ingestion"):
        open_own_faces(other, other.open(pulled.ref))
