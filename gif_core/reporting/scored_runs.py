"""Runs side by side: what differs in their settings, scores and cost."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gif_core.artifacts import Artifact, ArtifactDamagedError, ArtifactMissingError, ArtifactStore
from gif_core.protocols import SCORES_FILE, ScoresFormatError, flags_of, read_identification, read_scores
from gif_core.reporting.head_cost import code_dimension, size_of_head
from gif_core.runtime import flag_words
from gif_core.tokenization import CodeShape
from schemas.artifacts import Manifest
from schemas.stages import SEEDED, STAGES, StageName
from schemas.training import TrainingConfig

logger = logging.getLogger(__name__)
METRICS: Final[tuple[str, ...]] = ("accuracy", "tar_at_far_0.001", "tar_at_far_0.0001", "tpir_at_fpir_0.01", "rank_1")
"""Of each set, those that it has."""
OF_THE_FACES: Final = ("held_out", "identification")
"""Kinds of sets whose images are drawn from those of ingestion."""
IDENTIFICATION: Final = "Identification"
Settings = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """How a set was measured: metrics that came about in different ways cannot be compared."""

    words: str
    """Protocol and flags."""
    basis: str
    """Which images and pairs, as keys have them."""


@dataclass(frozen=True)
class ScoredRun:
    """An evaluation with everything that it was made of, as far as that is still stored."""

    lineage: Mapping[StageName, Manifest]
    settings: Settings
    """Of all stages, by names such as `training.head`."""
    scores: Mapping[str, Mapping[str, float]]
    """The model's metrics by set, and those of each way to identify identities."""
    head_parameters: int | None
    ways: Mapping[str, Way] = field(default_factory=dict)
    """How the metrics of each set came about."""

    @property
    def evaluation(self) -> Manifest:
        """The manifest of its scores."""
        return self.lineage["evaluation"]

    @property
    def training(self) -> Manifest:
        """The manifest of its model."""
        return self.lineage["training"]


def load_run(store: ArtifactStore, key: str) -> ScoredRun:
    """Read an evaluation and the manifests of what it was made of."""
    artifact = store.open(store.ref("evaluation", key))
    lineage = _lineage(store, artifact.manifest)
    if "training" not in lineage:
        raise ArtifactMissingError(f"the model of {artifact.ref} is not in {store.storage.url} any more")
    scores, ways = _read_metrics(artifact)
    return ScoredRun(lineage, _collect_settings(lineage), scores, _count_parameters(lineage), ways)


def load_beside(store: ArtifactStore, keys: Iterable[str]) -> list[ScoredRun]:
    """Those of other runs that can be read: a damaged one does not spoil the report of this one."""
    loaded = []
    for key in keys:
        try:
            loaded.append(load_run(store, key))
        except (ArtifactMissingError, ArtifactDamagedError, ScoresFormatError) as error:
            logger.warning("not shown beside this run: %s", error)
    return loaded


def differing_settings(runs: Sequence[ScoredRun]) -> list[str]:
    """Names of the settings that are not the same in all runs, in the order of the stages."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [name for name in names if any(run.settings.get(name) != runs[0].settings.get(name) for run in runs)]


def shared_metrics(runs: Sequence[ScoredRun]) -> dict[str, list[str]]:
    """The headline metrics that at least one run has, by set."""
    sets = dict.fromkeys(title for run in runs for title in run.scores)
    there = {title: {name for run in runs for name in run.scores.get(title, {})} for title in sets}
    ranked = {title: [name for name in METRICS if name in names] for title, names in there.items()}
    for title, names in there.items():
        if title.startswith(IDENTIFICATION):
            ranked[title] += sorted(name for name in names if name.startswith("fnir_"))
    return {title: names for title, names in ranked.items() if names}


def _read_metrics(evaluation: Artifact) -> tuple[dict[str, Mapping[str, float]], dict[str, Way]]:
    """The metrics of every set and of every way to identify identities, and how they came about."""
    manifest, sets = evaluation.manifest, read_scores(evaluation.path(SCORES_FILE))
    given = dict(zip(sets, manifest.settings.get("sets", ()), strict=False))
    scores = {title: found["systems"].get("model", {}) for title, found in sets.items()}
    ways = {title: _way(manifest, found, "model", given.get(title)) for title, found in sets.items()}
    identified = read_identification(evaluation) or {"systems": {}}
    for method, metrics in identified["systems"].items():
        scores[f"{IDENTIFICATION} by {method}"] = metrics
        ways[f"{IDENTIFICATION} by {method}"] = _way(manifest, identified, method, None)
    return scores, ways


def _way(evaluation: Manifest, found: Mapping[str, Any], system: str, given: Any) -> Way:
    """How a system was measured on a set that was `given` so; of identities of ingestion the faces count too."""
    words = ", ".join([found["protocol"], *flag_words(flags_of(found, system))])
    drawn = [evaluation.inputs["ingestion"].key, *(evaluation.settings.get(name) for name in ("pairs", "seed"))]
    return Way(words, json.dumps([given, drawn if found["kind"] in OF_THE_FACES else None], sort_keys=True))


def _lineage(store: ArtifactStore, manifest: Manifest) -> dict[StageName, Manifest]:
    """An artifact and all that it was made of, in the order of the stages; what was removed is left out."""
    found: dict[StageName, Manifest] = {manifest.stage: manifest}
    waiting = [manifest]
    while waiting:
        for stage, source in waiting.pop().inputs.items():
            if stage not in found and (made := _read(store, stage, source.key)):
                found[stage] = made
                waiting.append(made)
    return {stage: found[stage] for stage in STAGES if stage in found}


def _read(store: ArtifactStore, stage: StageName, key: str) -> Manifest | None:
    try:
        return store.open(store.ref(stage, key)).manifest
    except (ArtifactMissingError, ArtifactDamagedError):
        return None


def _collect_settings(lineage: Mapping[StageName, Manifest]) -> Settings:
    """The settings of all stages; those that take the run's seed share it."""
    settings: Settings = {}
    for stage, manifest in lineage.items():
        for name, value in _flatten(stage, manifest.settings):
            settings["seed" if stage in SEEDED and name == f"{stage}.seed" else name] = value
    return settings


def _flatten(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten(f"{path}.{name}", inner)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for place, inner in enumerate(value):
            yield from _flatten(f"{path}.{place}", inner)
    else:
        yield path, value


def _count_parameters(lineage: Mapping[StageName, Manifest]) -> int | None:
    """Of the head; unknown when its codes or vectors are gone, or its settings are of another time."""
    if not {"tokenization", "separation", "embedding"} <= lineage.keys():
        return None
    known = {name: value for name, value in lineage["training"].settings.items() if name in TrainingConfig.model_fields}
    codes = lineage["tokenization"].metrics
    try:
        dim = code_dimension(lineage["separation"], lineage["embedding"])
        shape = CodeShape(int(codes["length"]), int(codes["vocab_size"]))
        config = TrainingConfig.model_validate(known)
        return size_of_head(config, int(codes["identities"]), shape, dim).parameters
    except (KeyError, ValueError):
        return None
