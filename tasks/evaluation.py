"""Evaluation as a cached task; the features of large sets are cached parts of it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Draft, list_parts
from gif_core.backbones import embed_images
from gif_core.embedding.encoders import build_encoder
from gif_core.evaluation import (
    SetResult,
    error_rows,
    keep_pairs,
    pair_metrics,
    pixel_distances,
    who_is_who,
    write_scores,
)
from gif_core.images import Faces, Images, open_faces
from gif_core.protocols import (
    PAIR_PROTOCOL,
    UndefinedMetricsError,
    check_pairs,
    draw_pairs,
    pair_distances,
    verify_distances,
)
from gif_core.protocols.sets import PairSet, open_pair_set
from gif_core.runtime import pick_device
from gif_core.training import open_backbone
from schemas.artifacts import PARTS_FILE
from schemas.evaluation import HeldOutSet, IjbSet, PairSettings, SyntheticIjbSet
from schemas.run import RunConfig
from tasks.identification import headline, measure_identification
from tasks.progress import collect_features
from tasks.stage import Inputs, stage_task
from tasks.templates import evaluate_templates

logger = logging.getLogger(__name__)
WORK = ".work"
"""Folder of the synthetic sets; hidden, so it is not published."""
MIRRORED = frozenset({"model"})
"""Systems to whose features the flag `flip` adds those of the mirror image."""
NOBODY = "nobody was held out, so nobody was verified: set ingestion.held_out above 0"


@stage_task("evaluation")
def evaluation(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Pairs and templates of identities never trained on are verified and identified."""
    draft.metrics["pairs"] = 0
    results = []
    for given in config.evaluation.sets:
        if isinstance(given, IjbSet | SyntheticIjbSet):
            result = evaluate_templates(
                config, inputs["training"], given, draft.folder / WORK, from_scratch=draft.from_scratch
            )
        else:
            result = _evaluate_pairs(config, inputs, given, draft.folder / WORK)
        results.append(result)
        if result.undefined:
            logger.warning("%s: %s", result.title, result.undefined)
    identification = measure_identification(config, inputs)
    write_scores(draft.folder, results, inputs["training"].ref.key, identification)
    for result in results:
        draft.metrics |= _headline(result)
    draft.metrics |= headline(identification) if identification else {}
    draft.metrics["parts_computed"] = sum(result.parts_computed for result in results)
    (draft.folder / PARTS_FILE).write_text(list_parts(sorted({name for result in results for name in result.parts})))


def _evaluate_pairs(config: RunConfig, inputs: Inputs, given: PairSettings, work: Path) -> SetResult:
    """Metrics of each system; a set that cannot have any says so, and the others go on."""
    folds = config.evaluation.folds
    result = SetResult(given.title, given.kind, PAIR_PROTOCOL, {"folds": folds}, {"pairs": 0, "same": 0})
    try:
        pair_set = _held_out_pairs(config, inputs) if isinstance(given, HeldOutSet) else open_pair_set(given, work)
        pairs = pair_set.pairs
        result.counts = {"pairs": len(pairs), "same": int(pairs.same.sum())}
        check_pairs(pairs.same, folds)
    except UndefinedMetricsError as error:
        result.undefined = str(error)
        return result
    for system, distance in _distances(config, inputs, pair_set):
        found = verify_distances(distance, pairs.same, folds)
        result.systems[system], result.curves[system] = pair_metrics(found), found.roc
        result.system_flags[system] = {"flip": config.evaluation.flip and system in MIRRORED}
        if system == "model":
            result.errors = error_rows(system, pair_set.images, pairs, distance, found.threshold)
            result.kept_pairs = keep_pairs(
                result.title, -distance, pairs.same, pairs.left, pairs.right, _identities(pair_set)
            )
    return result


def _identities(pair_set: PairSet) -> NDArray[np.int64]:
    """Who is on every image, as far as it is known."""
    images, pairs = pair_set.images, pair_set.pairs
    return images.labels_N if isinstance(images, Faces) else who_is_who(pairs.left, pairs.right, pairs.same)


def _held_out_pairs(config: RunConfig, inputs: Inputs) -> PairSet:
    faces, given = open_faces(inputs["ingestion"], "held_out", config.execution.workers), config.evaluation
    if len(faces) == 0:
        raise UndefinedMetricsError(NOBODY)
    return PairSet(faces, draw_pairs(faces.labels_N, pairs=given.pairs, seed=given.seed, folds=given.folds))


def _distances(config: RunConfig, inputs: Inputs, pair_set: PairSet) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """The squared distance of every pair, for one system after another."""
    pairs = pair_set.pairs
    if "raw_pixels" in config.evaluation.systems:
        yield "raw_pixels", pixel_distances(pair_set.images, pairs)
    rows, left, right = pairs.needed_images()
    for system, features in _features(config, inputs, pair_set.images, rows):
        yield system, pair_distances(features, left, right)


def _features(
    config: RunConfig, inputs: Inputs, images: Images, rows: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The features that networks make of images, one network after another."""
    device, batch = pick_device(config.execution.device), config.execution.encode_batch
    systems = config.evaluation.systems
    if "encoder" in systems:
        encoder = build_encoder(config.embedding, device)
        encoded = (encoder.encode(images.load(rows[i : i + batch])) for i in range(0, len(rows), batch))
        yield "encoder", collect_features((chunk.cpu().numpy() for chunk in encoded), "encoder", len(rows))
    if "model" in systems:
        model = open_backbone(inputs["training"], device)
        embedded = embed_images(model, images, rows, flip=config.evaluation.flip, device=device, batch_size=batch)
        yield "model", collect_features(embedded, "model", len(rows))


def _headline(result: SetResult) -> dict[str, float | int | str]:
    """Headline metrics: every system's accuracy on held-out identities, and the model's main ones elsewhere."""
    if result.undefined and not any(result.systems.values()):
        return {} if result.kind == "held_out" else {f"{result.title}/undefined": result.undefined}
    if result.kind == "held_out":
        accuracies = {f"{system}_accuracy": metrics["accuracy"] for system, metrics in result.systems.items()}
        return {"pairs": result.counts["pairs"], **accuracies}
    names = ("accuracy",) if "folds" in result.flags else ("tar_at_far_0.0001", "tpir_at_fpir_0.01", "rank_1")
    metrics = result.systems.get("model", {})
    return {f"{result.title}/{name}": metrics[name] for name in names if name in metrics}
