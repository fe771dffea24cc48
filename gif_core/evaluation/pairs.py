"""Verification on sets of pairs: held-out identities, and files such as LFW and `.bin`."""

# Shapes: P pairs, N images.

from collections.abc import Generator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Inputs
from gif_core.evaluation.features import collect_features, system_features
from gif_core.evaluation.raw_pixels import pixel_distances
from gif_core.evaluation.results import SetResult, SystemResult, error_rows, pair_metrics
from gif_core.evaluation.single_scores import identities_from_pairs, keep_pairs
from gif_core.images import Faces, open_faces
from gif_core.protocols import (
    PAIR_PROTOCOL,
    UndefinedMetricsError,
    check_pairs,
    draw_pairs,
    pair_distances,
    verify_distances,
)
from gif_core.protocols.sets import PairSet, open_pair_set
from gif_core.runtime import Progress
from schemas.evaluation import HeldOutSet, PairSettings
from schemas.run import RunConfig

MIRRORED: Final = frozenset({"encoder", "model"})
"""Systems for which the flag `flip` adds the features of the mirror image."""
NOTHING_HELD_OUT: Final = "no identity was held out, so there are no pairs to verify: set ingestion.held_out above 0"


def evaluate_pairs(
    config: RunConfig, inputs: Inputs, given: PairSettings, work: Path
) -> Generator[Progress, None, SetResult]:
    """Metrics of each system; `undefined` says why a set has none."""
    folds = config.evaluation.folds
    result = SetResult(given.title, given.kind, PAIR_PROTOCOL, {"folds": folds}, {"pairs": 0, "same": 0})
    try:
        pair_set = _held_out_pairs(config, inputs) if isinstance(given, HeldOutSet) else open_pair_set(given, work)
        result.counts = {"pairs": len(pair_set.pairs), "same": int(pair_set.pairs.same.sum())}
        check_pairs(pair_set.pairs.same, folds)
        result.group, result.same_P = getattr(given, "group", None), pair_set.pairs.same
    except UndefinedMetricsError as error:
        result.undefined = str(error)
        return result
    if "raw_pixels" in config.evaluation.systems:
        _add_system(result, "raw_pixels", pair_set, pixel_distances(pair_set.images, pair_set.pairs), config)
    rows, left, right = pair_set.pairs.needed_images()
    for system, chunks in system_features(config, inputs, pair_set.images, rows):
        features = yield from collect_features(chunks, system, len(rows))
        _add_system(result, system, pair_set, pair_distances(features, left, right), config)
    return result


def _add_system(
    result: SetResult, system: str, pair_set: PairSet, distance_P: NDArray[np.float64], config: RunConfig
) -> None:
    """Add a system's metrics from the squared distances of all pairs; for the model also pair scores and errors."""
    pairs = pair_set.pairs
    found = verify_distances(distance_P, pairs.same, config.evaluation.folds)
    flags = {"flip": config.evaluation.flip and system in MIRRORED}
    kept_P = distance_P if result.group else None
    result.systems[system] = SystemResult(pair_metrics(found), flags, found.roc, distance_P=kept_P)
    if system == "model":
        result.errors = error_rows(system, pair_set.images, pairs, distance_P, found.threshold)
        identities = _identities(pair_set)
        result.pair_scores = keep_pairs(result.title, -distance_P, pairs.same, pairs.left, pairs.right, identities)


def _identities(pair_set: PairSet) -> NDArray[np.int64]:
    """The identity of every image, derived from the pairs if the images have no labels."""
    images, pairs = pair_set.images, pair_set.pairs
    return images.labels_N if isinstance(images, Faces) else identities_from_pairs(pairs.left, pairs.right, pairs.same)


def _held_out_pairs(config: RunConfig, inputs: Inputs) -> PairSet:
    faces, given = open_faces(inputs["ingestion"], "held_out", config.execution.workers), config.evaluation
    if len(faces) == 0:
        raise UndefinedMetricsError(NOTHING_HELD_OUT)
    return PairSet(faces, draw_pairs(faces.labels_N, pairs=given.pairs, seed=given.seed, folds=given.folds))
