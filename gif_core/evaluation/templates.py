"""Verification (1:1) and identification (1:N) on sets of templates: IJB-B, IJB-C, and synthetic ones."""

# Shapes: N faces, T templates, P pairs, G probes, D dimensions.

from collections.abc import Generator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Inputs, PartRunner
from gif_core.evaluation.part_jobs import Tree, complete_features, plan_jobs, scored_networks
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
from schemas.evaluation import IjbSet, Network, SyntheticIjbSet
from schemas.run import RunConfig


def evaluate_templates(
    config: RunConfig,
    inputs: Inputs,
    given: IjbSet | SyntheticIjbSet,
    work: Path,
    runner: PartRunner,
    *,
    from_scratch: bool,
) -> Generator[Progress, None, SetResult]:
    """1:1 and 1:N metrics of the encoder and the model; `undefined` says why some are missing."""
    address, name = open_template_set(given, work)
    files = EvaluationFiles(address)
    crops = files.listing(CROPS)
    meta, contents = read_ijb(files, name, crops), describe_ijb(files, name, crops)
    flags = Flags(given.flip, given.detector_score, given.norm)
    result = SetResult(given.title, given.kind, IJB_PROTOCOL, vars(flags), _count(meta))
    tree = Tree(files.whole_address, name, contents["meta"])
    for network in scored_networks(config, result):
        jobs = plan_jobs(config, inputs, network, tree, len(meta.faces), contents)
        features = yield from complete_features(config, result, jobs, runner, from_scratch=from_scratch)
        result.systems[network] = SystemResult({})
        _measure(result, network, meta, features, flags)
    return result


def _count(meta: IjbMeta) -> dict[str, int]:
    counts = {"images": len(meta.faces), "templates": len(meta.faces.template_ids_T), "pairs": len(meta.same_P)}
    return counts | {"same": int(meta.same_P.sum())}


def _measure(result: SetResult, network: Network, meta: IjbMeta, features: StoredFeatures, flags: Flags) -> None:
    faces = meta.faces
    places = (faces.template_N, faces.media_N, faces.detector_N)
    template_TD = pool_templates(features.load, *places, len(faces.template_ids_T), flags)
    undefined = []
    for name, measure in (("1:1", _verify), ("1:N", _identify)):
        try:
            measure(result, network, meta, template_TD)
        except UndefinedMetricsError as error:
            undefined.append(f"{name}: {error}")
    result.undefined = "; ".join(undefined) or None


def _verify(result: SetResult, network: Network, meta: IjbMeta, template_TD: NDArray[np.float64]) -> None:
    score_P = score_pairs(template_TD, meta.left_P, meta.right_P)
    verified = verify_templates(score_P, meta.same_P)
    result.systems[network].metrics |= template_metrics(verified)
    result.systems[network].roc = verified.roc
    if network == "model":
        identity_T = identities_from_pairs(meta.left_P, meta.right_P, meta.same_P)
        result.pair_scores = keep_pairs(result.title, score_P, meta.same_P, meta.left_P, meta.right_P, identity_T)


def _identify(result: SetResult, network: Network, meta: IjbMeta, template_TD: NDArray[np.float64]) -> None:
    if meta.probes is None:
        raise UndefinedMetricsError("the set has no gallery and probe files")
    identified = identify_templates(template_TD, meta.galleries, meta.probes)
    result.systems[network].metrics |= identification_metrics(identified)
    result.systems[network].cmc = identified.cmc
    if network == "model":
        result.searches = keep_searches(result.title, identified.searches, meta.probes.subject_G)
