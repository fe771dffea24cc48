"""Evaluation as a cached task."""

import json
import logging
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gif_core.artifacts import Draft
from gif_core.devices import pick_device
from gif_core.encoders.building import build_encoder
from gif_core.evaluation import draw_pairs, embed_images, raw_pixels
from gif_core.faces import Faces
from gif_core.inputs import open_faces
from gif_core.metrics import MetricsWriter
from gif_core.models import load_backbone
from gif_core.verification import Features, Verification, pair_distances, verify_distances
from schemas.run import RunConfig
from tasks.progress import last, track
from tasks.stage import Inputs, stage_task

logger = logging.getLogger(__name__)
ROC = pa.schema([("subject", pa.string()), ("far", pa.float64()), ("tar", pa.float64())])
ROC_POINTS = 400


@stage_task("evaluation")
def evaluation(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Pairs of held-out people are verified by raw pixels, by the encoder and by the trained model."""
    faces = open_faces(inputs["ingestion"], "held_out", config.execution.workers)
    results: dict[str, Verification] = {}
    draft.metrics["pairs"] = 0
    if len(faces) == 0:
        logger.warning("nobody was held out, so nobody was verified: set ingestion.held_out above 0")
    else:
        given = config.evaluation
        pairs = draw_pairs(faces.labels_N, pairs=given.pairs, seed=given.seed, folds=given.folds)
        draft.metrics["pairs"] = len(pairs)
        rows, places = np.unique(np.concatenate([pairs.left, pairs.right]), return_inverse=True)
        left, right = np.split(places, 2)
        for subject, features in _features(config, inputs, faces, rows):
            distances = pair_distances(features, left, right)
            results[subject] = verify_distances(distances, pairs.same, given.folds)
    _write(draft, results)


def _features(
    config: RunConfig, inputs: Inputs, faces: Faces, rows: NDArray[np.int64]
) -> Iterator[tuple[str, Features]]:
    """The features of the held-out faces, one method after another."""
    device, batch = pick_device(config.execution.device), config.execution.encode_batch
    yield "raw_pixels", raw_pixels(faces, rows)
    encoder = build_encoder(config.embedding, device)
    encoded = (encoder.encode(faces.load(rows[i : i + batch])) for i in range(0, len(rows), batch))
    yield "encoder", _collect((chunk.cpu().numpy() for chunk in encoded), "encoder", len(rows))
    model = load_backbone(inputs["training"].path("backbone.safetensors"), inputs["training"].path("model.json")).to(
        device
    )
    embedded = embed_images(model, faces, rows, flip=config.evaluation.flip, device=device, batch_size=batch)
    yield "model", _collect(embedded, "model", len(rows))


def _collect(chunks: Iterator[NDArray[np.float32]], name: str, total: int) -> NDArray[np.float32]:
    collected: list[NDArray[np.float32]] = []

    def collect() -> Iterator[int]:
        for chunk in chunks:
            collected.append(chunk)
            yield sum(map(len, collected))

    last(track(collect(), name, lambda done: (done, total)))
    return np.concatenate(collected)


def _write(draft: Draft, results: dict[str, Verification]) -> None:
    scores = {subject: _figures(result) for subject, result in results.items()}
    flat = {f"{subject}/{name}": value for subject, figures in scores.items() for name, value in figures.items()}
    with MetricsWriter(draft.folder / "metrics.parquet", "evaluation") as writer:
        writer.add(None, flat)
    (draft.folder / "scores.json").write_text(json.dumps(scores, indent=1))
    curves = [_curve(subject, result) for subject, result in results.items()]
    pq.write_table(pa.concat_tables([ROC.empty_table(), *curves]), draft.folder / "roc.parquet")
    draft.metrics |= {f"{subject}_accuracy": figures["accuracy"] for subject, figures in scores.items()}


def _figures(result: Verification) -> dict[str, float]:
    figures = {
        "accuracy": result.accuracy,
        "accuracy_std": result.accuracy_std,
        "threshold": result.threshold,
    }
    return figures | {f"tar_at_far_{far:g}": tar for far, tar in result.tar_at_far.items()}


def _curve(subject: str, result: Verification) -> pa.Table:
    """The ROC, thinned to what a picture can show."""
    roc = result.roc
    points = np.unique(np.linspace(0, len(roc.far) - 1, ROC_POINTS).astype(int))
    columns = {"subject": [subject] * len(points), "far": roc.far[points], "tar": roc.tar[points]}
    return pa.table(columns, schema=ROC)
