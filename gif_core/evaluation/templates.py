"""Verification (1:1) and identification (1:N) on sets of templates: IJB-B, IJB-C, and synthetic ones."""

# Shapes: N faces, T templates, P pairs, G probes, D dimensions.

from collections.abc import Generator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Artifact, ArtifactStore, PartRun, PartRunner, PartStore
from gif_core.evaluation.part_jobs import Tree, plan_jobs
from gif_core.evaluation.results import SetResult, SystemResult, identification_metrics, template_metrics
from gif_core.evaluation.single_scores import identities_from_pairs, keep_pairs, keep_searches
from gif_core.evaluation.template_features import StoredFeatures
from gif_core.protocols import (
    IJB_PROTOCOL,
    Flags,
    UndefinedMetricsError,
    identify_templates,
    pool_templates,
    score_pairs,
    verify_templates,
)
from gif_core.protocols.sets import CROPS, EvaluationFiles, IjbMeta, describe_ijb, open_template_set, read_ijb
from gif_core.runtime import Progress
from schemas.evaluation import IjbSet, SyntheticIjbSet
from schemas.run import RunConfig

SYSTEM: Final = "model"


def evaluate_templates(
    config: RunConfig,
    training: Artifact,
    given: IjbSet | SyntheticIjbSet,
    work: Path,
    runner: PartRunner,
    *,
    from_scratch: bool,
) -> Generator[Progress, None, SetResult]:
    """1:1 and 1:N metrics of the model; `undefined` says why some are missing."""
    address, name = open_template_set(given, work)
    files = EvaluationFiles(address)
    crops = files.listing(CROPS)
    meta, contents = read_ijb(files, name, crops), describe_ijb(files, name, crops)
    flags = Flags(given.flip, given.detector_score, given.norm)
    result = SetResult(given.title, given.kind, IJB_PROTOCOL, vars(flags), _count(meta), {SYSTEM: SystemResult({})})
    tree = Tree(files.whole_address, name, contents["meta"])
    jobs = plan_jobs(config, training, tree, len(meta.faces), contents)
    parts = PartStore(ArtifactStore(config.store), "evaluation")
    part_run = PartRun(parts, jobs, from_scratch=from_scratch)
    result.parts = yield from part_run.complete(runner, "templates")
    result.parts_computed = len(part_run.missing)
    features = StoredFeatures([job.part for job in jobs], lambda number: parts.load(result.parts[number]))
    _measure(result, meta, features, flags)
    return result


def _count(meta: IjbMeta) -> dict[str, int]:
    counts = {"images": len(meta.faces), "templates": len(meta.faces.template_ids_T), "pairs": len(meta.same_P)}
    return counts | {"same": int(meta.same_P.sum())}


def _measure(result: SetResult, meta: IjbMeta, features: StoredFeatures, flags: Flags) -> None:
    faces = meta.faces
    places = (faces.template_N, faces.media_N, faces.detector_N)
    template_TD = pool_templates(features.load, *places, len(faces.template_ids_T), flags)
    undefined = []
    for name, measure in (("1:1", _verify), ("1:N", _identify)):
        try:
            measure(result, meta, template_TD)
        except UndefinedMetricsError as error:
            undefined.append(f"{name}: {error}")
    result.undefined = "; ".join(undefined) or None


def _verify(result: SetResult, meta: IjbMeta, template_TD: NDArray[np.float64]) -> None:
    score_P = score_pairs(template_TD, meta.left_P, meta.right_P)
    verified = verify_templates(score_P, meta.same_P)
    result.systems[SYSTEM].metrics |= template_metrics(verified)
    result.systems[SYSTEM].roc = verified.roc
    identity_T = identities_from_pairs(meta.left_P, meta.right_P, meta.same_P)
    result.pair_scores = keep_pairs(result.title, score_P, meta.same_P, meta.left_P, meta.right_P, identity_T)


def _identify(result: SetResult, meta: IjbMeta, template_TD: NDArray[np.float64]) -> None:
    if meta.probes is None:
        raise UndefinedMetricsError("the set has no gallery and probe files")
    identified = identify_templates(template_TD, meta.galleries, meta.probes)
    result.systems[SYSTEM].metrics |= identification_metrics(identified)
    result.systems[SYSTEM].cmc = identified.cmc
    result.searches = keep_searches(result.title, identified.searches, meta.probes.subject_G)
