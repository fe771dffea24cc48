"""INT8: an ONNX network with weights and activations of eight bits, and what that costs in accuracy."""

# Shapes: B images, C channels, H height, W width.

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gif_core.artifacts import Artifact, ArtifactStore, find_evaluation, open_input
from gif_core.backbones import embed_images
from gif_core.images import Images, normalize_pixels, open_faces
from gif_core.protocols import UndefinedMetricsError, draw_pairs, pair_distances, verify_distances
from gif_core.protocols.sets import PairSet
from gif_core.runtime import install_extra_command
from gif_core.sharing.export import INPUT, ExportError, OnnxNetwork, export_onnx, written_whole
from schemas.evaluation import EvaluationConfig

CALIBRATION: Final = 256
"""Faces that the ranges of the activations are taken from."""
BATCH: Final = 32
CPU: Final = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class OwnFaces:
    """Faces of the run that trained a model: some to calibrate with, and the pairs that evaluation verified."""

    training: Images
    rows: NDArray[np.int64]
    """Rows of `training` to calibrate with, spread over all of them."""
    held_out: PairSet | None
    """None if no pairs can be drawn."""
    folds: int = 10
    flip: bool = True


@dataclass(frozen=True, slots=True)
class Int8Export:
    """Accuracy on the held-out pairs of the run, and size, of both networks."""

    pairs: int
    """0 if the run has no held-out pairs; the accuracies are NaN then."""
    before: float
    after: float
    bytes_before: int
    bytes_after: int


def open_own_faces(store: ArtifactStore, model: Artifact) -> OwnFaces:
    """The faces that a model was trained on, and its held-out pairs as its evaluation drew them."""
    ingestion, evaluation = open_input(store, model, "ingestion"), find_evaluation(store, model, prefer_own_faces=True)
    names = ("pairs", "seed", "folds", "flip")
    stated = {name: evaluation.settings[name] for name in names if evaluation and name in evaluation.settings}
    given = EvaluationConfig.model_validate(stated)
    training, held_out = (open_faces(ingestion, split, workers=1) for split in ("identities", "held_out"))
    rows = np.unique(np.linspace(0, len(training) - 1, CALIBRATION).astype(np.int64))
    try:
        pairs = draw_pairs(held_out.labels_N, pairs=given.pairs, seed=given.seed, folds=given.folds)
    except UndefinedMetricsError:
        return OwnFaces(training, rows, None)
    return OwnFaces(training, rows, PairSet(held_out, pairs), given.folds, given.flip)


def export_int8(model: nn.Module, faces: OwnFaces, path: Path) -> Int8Export:
    """Write the network with weights and activations of eight bits, their ranges calibrated on faces of the run."""
    if find_spec("onnxruntime") is None:
        raise ExportError(f"INT8 needs onnxruntime: {install_extra_command('onnx')}")
    with tempfile.TemporaryDirectory(prefix="gif-int8-") as folder, written_whole(path) as part:
        exact = Path(folder) / "exact.onnx"
        export_onnx(model, exact)
        quantize(exact, part, faces, Path(folder))
        before, after = (verify_own_pairs(OnnxNetwork(file), faces) for file in (exact, part))
        pairs = len(faces.held_out.pairs) if faces.held_out else 0
        return Int8Export(pairs, before, after, exact.stat().st_size, part.stat().st_size)


def quantize(source: Path, path: Path, faces: OwnFaces, work: Path) -> None:
    """Static quantization by onnxruntime, one scale per channel of the weights.

    Weights use seven of their eight bits: processors without VNNI add pairs of products in 16 bits, which saturate.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = work / "prepared.onnx"
    with _quiet(work):
        quant_pre_process(source, prepared)
        quantize_static(
            prepared,
            path,
            _Calibration(faces),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
        )


def verify_own_pairs(network: nn.Module, faces: OwnFaces) -> float:
    """Accuracy of a network on the held-out pairs; NaN without pairs."""
    if faces.held_out is None:
        return float("nan")
    rows, left, right = faces.held_out.pairs.needed_images()
    chunks = embed_images(network, faces.held_out.images, rows, flip=faces.flip, device=CPU, batch_size=BATCH)
    distances = pair_distances(np.concatenate(list(chunks)), left, right)
    return verify_distances(distances, faces.held_out.pairs.same, faces.folds).accuracy


class _Calibration:
    """Batches of faces in the form that onnxruntime asks for: None after the last one."""

    def __init__(self, faces: OwnFaces) -> None:
        self._batches = self._read(faces)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._batches, None)

    @staticmethod
    def _read(faces: OwnFaces) -> Iterator[dict[str, Any]]:
        for start in range(0, len(faces.rows), BATCH):
            images_BHWC = faces.training.load(faces.rows[start : start + BATCH])
            yield {INPUT: normalize_pixels(images_BHWC, CPU).numpy()}


@contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """Without onnxruntime's advice on the root logger, and with its temporary files in a folder that is removed."""
    before, root = tempfile.tempdir, logging.getLogger()
    level = root.level
    tempfile.tempdir = os.fspath(folder)
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        tempfile.tempdir = before
        root.setLevel(level)
