"""Runs side by side: what differs in their settings, scores and cost."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gif_core.artifacts import ArtifactMissingError, ArtifactStore
from gif_core.artifacts.errors import ArtifactDamagedError
from gif_core.head_cost import size_of_head
from gif_core.scores import read_scores
from gif_core.tokenization import CodeShape
from schemas.artifacts import Manifest
from schemas.stages import SEEDED, STAGES, StageName
from schemas.training import TrainingConfig

logger = logging.getLogger(__name__)
FIGURES: Final = ("accuracy", "tar_at_far_0.001", "tar_at_far_0.0001", "tpir_at_fpir_0.01", "rank_1")
"""Of each set, those that it has."""
Settings = dict[str, Any]


@dataclass(frozen=True)
class ScoredRun:
    """An evaluation with everything that it was made of, as far as that is still stored."""

    lineage: Mapping[StageName, Manifest]
    settings: Settings
    """Of all stages, by names such as `training.head`."""
    scores: Mapping[str, Mapping[str, float]]
    """The model's figures by set."""
    head_parameters: int | None

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
    sets = read_scores(artifact.path("scores.json"))
    scores = {title: found["subjects"].get("model", {}) for title, found in sets.items()}
    return ScoredRun(lineage, _collect_settings(lineage), scores, _count_parameters(lineage))


def load_beside(store: ArtifactStore, keys: Iterable[str]) -> list[ScoredRun]:
    """Those of other runs that can be read: a damaged one does not spoil the report of this one."""
    loaded = []
    for key in keys:
        try:
            loaded.append(load_run(store, key))
        except (ArtifactMissingError, ArtifactDamagedError) as error:
            logger.warning("not shown beside this run: %s", error)
    return loaded


def differing_settings(runs: Sequence[ScoredRun]) -> list[str]:
    """Names of the settings that are not the same in all runs, in the order of the stages."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [name for name in names if any(run.settings.get(name) != runs[0].settings.get(name) for run in runs)]


def shared_figures(runs: Sequence[ScoredRun]) -> list[tuple[str, str]]:
    """Set and figure of every headline that at least one run has."""
    sets = dict.fromkeys(title for run in runs for title in run.scores)
    pairs = [(title, figure) for title in sets for figure in FIGURES]
    return [(title, figure) for title, figure in pairs if any(figure in run.scores.get(title, {}) for run in runs)]


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
    if not {"tokenization", "embedding"} <= lineage.keys():
        return None
    known = {name: value for name, value in lineage["training"].settings.items() if name in TrainingConfig.model_fields}
    codes, vectors = lineage["tokenization"].metrics, lineage["embedding"].metrics
    try:
        shape = CodeShape(int(codes["length"]), int(codes["range"]))
        config = TrainingConfig.model_validate(known)
        return size_of_head(config, int(codes["identities"]), shape, int(vectors["dimensions"])).parameters
    except (KeyError, ValueError):
        return None
