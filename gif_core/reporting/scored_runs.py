"""Evaluations of a store: which are comparable, and each with its lineage, settings, scores and cost."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gif_core.artifacts import Artifact, ArtifactDamagedError, ArtifactMissingError, ArtifactStore, with_ancestors
from gif_core.protocols import ScoresFormatError, flags_of, read_identification, read_scores
from gif_core.reporting.head_cost import code_dimension, size_of_head
from gif_core.runtime import flag_words
from gif_core.tokenization import CodeShape
from schemas.artifacts import Manifest
from schemas.files import SCORES_FILE
from schemas.stages import SEEDED, VERSIONS, StageName
from schemas.training import TrainingConfig

logger = logging.getLogger(__name__)
OF_THE_FACES: Final = ("held_out", "identification")
"""Kinds of sets whose images are those of ingestion."""
MOST_BESIDE: Final = 12
IDENTIFICATION: Final = "Identification"
Settings = dict[str, Any]


@dataclass(frozen=True)
class Scored:
    """What an evaluation shares with comparable ones: the same faces and the same settings."""

    key: str
    ingestion: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Measurement:
    """How a set was measured; metrics of different measurements are not comparable."""

    words: str
    """Protocol and flags."""
    basis: str
    """Which images and pairs, as in keys."""


@dataclass(frozen=True)
class ScoredRun:
    """An evaluation with all artifacts it was made from, as far as they are still stored."""

    lineage: Mapping[StageName, Manifest]
    settings: Settings
    """Settings of all stages, by names such as `training.head`."""
    scores: Mapping[str, Mapping[str, float]]
    """The model's metrics by set, and those of each identification method."""
    head_parameters: int | None
    measurements: Mapping[str, Measurement] = field(default_factory=dict)
    """How each set was measured."""

    @property
    def evaluation(self) -> Manifest:
        """The manifest of its scores."""
        return self.lineage["evaluation"]

    @property
    def training(self) -> Manifest:
        """The manifest of its model."""
        return self.lineage["training"]


def find_comparable(store: ArtifactStore, scored: Scored, most: int = MOST_BESIDE) -> dict[str, str]:
    """Return key and digest of the newest other evaluations of the same faces with the same settings."""
    found = {}
    for manifest in store.manifests("evaluation"):
        comparable = manifest.version == VERSIONS["evaluation"] and manifest.settings == scored.settings
        if comparable and manifest.key != scored.key and _made_of(manifest, scored.ingestion):
            training = manifest.inputs.get("training")
            if training and store.find("evaluation", manifest.key) and store.find("training", training.key):
                found[manifest.key] = manifest.digest
        if len(found) == most:
            break
    return found


def load_run(store: ArtifactStore, key: str) -> ScoredRun:
    """Load an evaluation and the manifests of all artifacts it was made from."""
    artifact = store.open(store.ref("evaluation", key))
    lineage = {stage: each.manifest for stage, each in with_ancestors(store, artifact).items()}
    if "training" not in lineage:
        raise ArtifactMissingError(f"the model of {artifact.ref} is no longer in {store.storage.url}")
    scores, ways = _read_metrics(artifact)
    return ScoredRun(lineage, _collect_settings(lineage), scores, _count_parameters(lineage), ways)


def load_beside(store: ArtifactStore, keys: Iterable[str]) -> list[ScoredRun]:
    """Load the other runs, without those that cannot be read: they must not prevent the report of this one."""
    loaded = []
    for key in keys:
        try:
            loaded.append(load_run(store, key))
        except (ArtifactMissingError, ArtifactDamagedError, ScoresFormatError) as error:
            logger.warning("a run is left out of the comparison: %s", error)
    return loaded


def _read_metrics(evaluation: Artifact) -> tuple[dict[str, Mapping[str, float]], dict[str, Measurement]]:
    """Return the metrics of every set and identification method, and how each was measured."""
    manifest, sets = evaluation.manifest, read_scores(evaluation.path(SCORES_FILE))
    given = dict(zip(sets, manifest.settings.get("sets", ()), strict=False))
    scores = {title: found["systems"].get("model", {}) for title, found in sets.items()}
    measurements = {title: _measurement(manifest, found, "model", given.get(title)) for title, found in sets.items()}
    identified = read_identification(evaluation) or {"systems": {}}
    for method, metrics in identified["systems"].items():
        scores[f"{IDENTIFICATION} by {method}"] = metrics
        measurements[f"{IDENTIFICATION} by {method}"] = _measurement(manifest, identified, method, None)
    return scores, measurements


def _measurement(evaluation: Manifest, found: Mapping[str, Any], system: str, given: Any) -> Measurement:
    """Describe how a system was measured on a set; faces are part of it for sets drawn from ingestion."""
    words = ", ".join([found["protocol"], *flag_words(flags_of(found, system))])
    drawn = [evaluation.inputs["ingestion"].key, *(evaluation.settings.get(name) for name in ("pairs", "seed"))]
    return Measurement(words, json.dumps([given, drawn if found["kind"] in OF_THE_FACES else None], sort_keys=True))


def _collect_settings(lineage: Mapping[StageName, Manifest]) -> Settings:
    """Return the settings of all stages; stages that use the run's seed share one entry."""
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
    """Count the head's parameters; None if codes or vectors are gone or the settings are of another version."""
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


def _made_of(manifest: Manifest, ingestion: str) -> bool:
    return "ingestion" in manifest.inputs and manifest.inputs["ingestion"].key == ingestion
