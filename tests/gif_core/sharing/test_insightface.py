"""Exported ONNX files in the hands of insightface, whose package is installed into a folder of the test."""

import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from gif_core.artifacts import ArtifactStore, find_model
from gif_core.backbones import embed_batch
from gif_core.images import decode_bounded
from gif_core.sharing import export_int8, export_onnx, open_own_faces
from gif_core.synthetic import draw_jpeg
from gif_core.training import open_backbone
from tests.recognition_store import CPU, fill_store

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

PACKAGES = ("insightface==2.1", "scikit-image", "lazy_loader", "imageio", "tifffile")
"""insightface, and of what it needs the packages that are not here already."""
ASK = """
import sys
import cv2, numpy as np
from insightface.model_zoo import get_model
for path in sys.argv[2:]:
    model = get_model(path, providers=["CPUExecutionProvider"])
    assert (type(model).__name__, model.taskname) == ("ArcFaceONNX", "recognition"), (type(model), model.taskname)
    assert (model.input_mean, model.input_std, model.input_size) == (127.5, 127.5, (112, 112))
    model.prepare(ctx_id=-1)
    np.save(path + ".npy", model.get_feat([cv2.imread(sys.argv[1])] * 2))
"""


@pytest.mark.slow
def test_insightface_opens_the_files_and_gives_the_features_of_the_model(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "packages")]
    installed = subprocess.run([*install, *PACKAGES], capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"insightface cannot be installed here: {installed.stderr.strip().splitlines()[-1]}")
    fill_store(tmp_path / "store")
    store = ArtifactStore(str(tmp_path / "store"))
    found = find_model(store, "latest").artifact
    model, paths = open_backbone(found, CPU), [tmp_path / "exact.onnx", tmp_path / "int8.onnx"]
    export_onnx(model, paths[0])
    export_int8(model, open_own_faces(store, found), paths[1])
    pixels_HWC = decode_bounded(draw_jpeg(0, 5, 0))
    cv2.imwrite(str(tmp_path / "face.png"), cv2.cvtColor(pixels_HWC, cv2.COLOR_RGB2BGR))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "packages")}
    command = [sys.executable, "-c", ASK, str(tmp_path / "face.png"), *map(str, paths)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert asked.returncode == 0, asked.stderr
    (wanted,) = embed_batch(model, pixels_HWC[None], flip=False, device=CPU)
    for path, least in zip(paths, (0.99999, 0.97), strict=True):
        features = np.load(f"{path}.npy")
        assert features.shape == (2, len(wanted))
        assert features[0] @ wanted / np.linalg.norm(features[0]) > least
