"""Identification on TinyFace: probes searched in a gallery with distractors."""

# Shapes: N images, G of the gallery, Q probes, D dimensions.

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Inputs, PartRunner
from gif_core.evaluation.part_jobs import Tree, complete_features, plan_jobs, scored_networks
from gif_core.evaluation.results import SetResult, SystemResult, search_metrics
from gif_core.evaluation.single_scores import keep_searches
from gif_core.evaluation.template_features import StoredFeatures
from gif_core.protocols import POOLED_AT_ONCE, SEARCH_PROTOCOL, Flags, combine_features, search_cmc, search_images
from gif_core.protocols.sets import SearchSet, describe_tinyface, list_tinyface, read_tinyface, tinyface_files
from gif_core.runtime import Progress
from schemas.evaluation import Network, TinyFaceSet
from schemas.run import RunConfig


def evaluate_search(
    config: RunConfig, inputs: Inputs, given: TinyFaceSet, runner: PartRunner, *, from_scratch: bool
) -> Generator[Progress, None, SetResult]:
    """Ranks of the encoder and the model."""
    files = tinyface_files(given.path)
    listing = list_tinyface(files)
    images, contents = read_tinyface(files, listing), describe_tinyface(files, listing)
    counts = {"probes": images.probes, "gallery": images.gallery, "distractors": images.distractors}
    result = SetResult(given.title, given.kind, SEARCH_PROTOCOL, {"flip": given.flip}, counts)
    tree = Tree(files.whole_address, "TinyFace", contents["images"])
    for network in scored_networks(config, result):
        jobs = plan_jobs(config, inputs, network, tree, len(images), contents)
        features = yield from complete_features(config, result, jobs, runner, from_scratch=from_scratch)
        _measure(result, network, images, _unit_features(features, len(images), flip=given.flip))
    return result


def _measure(result: SetResult, network: Network, images: SearchSet, features_ND: NDArray[np.float32]) -> None:
    gallery, probes = slice(images.gallery), slice(images.gallery, None)
    labels = images.label_N
    found = search_images(features_ND[gallery], labels[gallery], features_ND[probes], labels[probes])
    cmc = search_cmc(found)
    result.systems[network] = SystemResult(search_metrics(cmc), cmc=cmc)
    if network == "model":
        result.searches = keep_searches(result.title, {"gallery": found}, labels[probes])


def _unit_features(stored: StoredFeatures, count: int, *, flip: bool) -> NDArray[np.float32]:
    """Unit features of all images, those of the mirror added with `flip`."""
    flags = Flags(flip, detector_score=False, norm=False)
    chunks = (stored.load(start, min(start + POOLED_AT_ONCE, count)) for start in range(0, count, POOLED_AT_ONCE))
    return np.concatenate([combine_features(*chunk, flags).astype(np.float32) for chunk in chunks])
