"""Sets of templates within evaluation: features as cached parts, then all metrics from them in seconds."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock

import torch
from prefect import task
from prefect.cache_policies import NO_CACHE
from torch import nn

from gif_core.artifacts import Artifact, ArtifactStore, PartStore
from gif_core.evaluation import (
    FeaturePart,
    SetResult,
    StoredFeatures,
    embed_features,
    identification_metrics,
    keep_pairs,
    keep_searches,
    plan_features,
    template_metrics,
    who_is_who,
)
from gif_core.protocols import (
    IJB_PROTOCOL,
    Flags,
    UndefinedMetricsError,
    identify_templates,
    pool_templates,
    score_pairs,
    verify_templates,
)
from gif_core.protocols.sets import (
    CROPS,
    EvaluationFiles,
    IjbImages,
    IjbMeta,
    IjbName,
    describe_ijb,
    open_template_set,
    read_faces,
    read_ijb,
)
from gif_core.runtime import own_device
from gif_core.training import open_backbone
from schemas.artifacts import ArtifactRef
from schemas.evaluation import IjbSet, SyntheticIjbSet
from schemas.run import RunConfig
from tasks.progress import track
from tasks.runners import end_with_parent, open_runner, resources, threads_per_part

logger = logging.getLogger(__name__)
SYSTEM = "model"
_one_at_a_time = Lock()
"""Threads of a process that embed parts share its model."""


@dataclass(frozen=True)
class Tree:
    """Where a set lies, and what it held when the run began."""

    address: str
    name: IjbName
    digest: str


def evaluate_templates(
    config: RunConfig, training: Artifact, given: IjbSet | SyntheticIjbSet, work: Path, *, from_scratch: bool
) -> SetResult:
    """1:1 and 1:N metrics of the model; what the set cannot answer is said to be undefined."""
    address, name = open_template_set(given, work)
    files = EvaluationFiles(address)
    crops = files.listing(CROPS)
    meta, holds = read_ijb(files, name, crops), describe_ijb(files, name, crops)
    flags = Flags(given.flip, given.detector_score, given.norm)
    counts = {"images": len(meta.faces), "templates": len(meta.faces.template_ids_T), "pairs": len(meta.same_P)}
    counts["same"] = int(meta.same_P.sum())
    result = SetResult(given.title, given.kind, IJB_PROTOCOL, vars(flags), counts, {SYSTEM: {}})
    plan = plan_features(len(meta.faces), {**_describe_model(training), **holds})
    tree = Tree(files.whole_address, name, holds["meta"])
    features = _open_features(config, training.ref, tree, plan, result, from_scratch=from_scratch)
    _measure(result, meta, features, flags)
    return result


def _measure(result: SetResult, meta: IjbMeta, features: StoredFeatures, flags: Flags) -> None:
    faces = meta.faces
    places = (faces.template_N, faces.media_N, faces.detector_N)
    template_TD = pool_templates(features.load, *places, len(faces.template_ids_T), flags)
    undefined = []
    try:
        score_P = score_pairs(template_TD, meta.left_P, meta.right_P)
        verified = verify_templates(score_P, meta.same_P)
        result.systems[SYSTEM] |= template_metrics(verified)
        result.curves[SYSTEM] = verified.roc
        person_T = who_is_who(meta.left_P, meta.right_P, meta.same_P)
        result.kept_pairs = keep_pairs(result.title, score_P, meta.same_P, meta.left_P, meta.right_P, person_T)
    except UndefinedMetricsError as error:
        undefined.append(f"1:1: {error}")
    try:
        if meta.probes is None:
            raise UndefinedMetricsError("the set has no files of galleries and probes")
        identified = identify_templates(template_TD, meta.galleries, meta.probes)
        result.systems[SYSTEM] |= identification_metrics(identified)
        result.ranks[SYSTEM] = identified.cmc
        result.kept_searches = keep_searches(result.title, identified.searches, meta.probes.subject_G)
    except UndefinedMetricsError as error:
        undefined.append(f"1:N: {error}")
    result.undefined = "; ".join(undefined) or None


def _describe_model(training: Artifact) -> dict[str, str]:
    """What the model's files hold: another run that trained the same has the same features."""
    return {name: training.stored(name).sha256 for name in ("backbone.safetensors", "model.json")}


def _open_features(
    config: RunConfig,
    training: ArtifactRef,
    tree: Tree,
    plan: list[FeaturePart],
    result: SetResult,
    *,
    from_scratch: bool,
) -> StoredFeatures:
    """All features of a set, after those that are not stored yet have been computed."""
    parts = PartStore(ArtifactStore(config.store), "evaluation")
    stored = {} if from_scratch else parts.names()
    missing = [part for part in plan if part.key not in stored]
    logger.info("%s: %d of %d parts are stored already", result.title, len(plan) - len(missing), len(plan))
    if missing:
        done = track(_run_parts(config, training, tree, missing), "templates", lambda step: (step[0], len(missing)))
        stored |= {part.key: name for part, (_, name) in zip(missing, done, strict=True)}
    result.parts, result.parts_computed = [stored[part.key] for part in plan], len(missing)
    return StoredFeatures(plan, lambda number: parts.load(result.parts[number]))


def _run_parts(
    config: RunConfig, training: ArtifactRef, tree: Tree, missing: list[FeaturePart]
) -> Iterator[tuple[int, str]]:
    """How many parts are done, and the name of the last; in order."""
    execution = config.execution
    given = {
        "store": ArtifactStore(config.store).storage.url,
        "training": training,
        "tree": tree,
        "device": execution.device,
        "batch_size": execution.encode_batch,
        "threads": threads_per_part(execution),
    }
    with open_runner(execution) as runner, resources(execution):
        futures = [runner.submit(compute_features, given | {"part": part}) for part in missing]
        for number, future in enumerate(futures, start=1):
            yield number, future.result()


@task(
    name="embed templates",
    task_run_name="embed {tree.name} from {part.start}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def compute_features(
    store: str, training: ArtifactRef, tree: Tree, part: FeaturePart, device: str, batch_size: int, threads: int
) -> str:
    """Align and embed a part and store it, wherever this runs; the name under which it is stored."""
    end_with_parent()
    content = _embed_alone(store, training, tree, part, device, batch_size, threads)
    return PartStore(ArtifactStore(store), "evaluation").save(part.key, content)


def _embed_alone(
    store: str, training: ArtifactRef, tree: Tree, part: FeaturePart, device: str, batch_size: int, threads: int
) -> bytes:
    """Embed while no other thread of this process does; other processes get the task by value, but no lock."""
    with _one_at_a_time:
        place = own_device(device)
        model, images = _model(store, training, place), _images(tree)
        return embed_features(model, images, part, device=place, batch_size=batch_size, workers=threads)


@lru_cache(1)
def _model(store: str, training: ArtifactRef, device: torch.device) -> nn.Module:
    """One for each process."""
    return open_backbone(ArtifactStore(store).open(training), device)


@lru_cache(1)
def _images(tree: Tree) -> IjbImages:
    """One set for each process."""
    files = EvaluationFiles(tree.address)
    return IjbImages(files, read_faces(files, tree.name))
