"""What a run would do: the key of every stage, whether it is stored already, and what made the difference."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gif_core.artifacts.keys import artifact_key
from gif_core.artifacts.store import ArtifactStore
from gif_core.artifacts.tags import read_tag
from gif_core.ingestion import describe_sources
from schemas.artifacts import ArtifactRef
from schemas.run import RunConfig
from schemas.stages import INPUTS, STAGES, VERSIONS, StageName


@dataclass(frozen=True)
class StagePlan:
    """One stage of a run that has not begun."""

    ref: ArtifactRef
    action: Literal["run", "reuse"]
    reason: str


def stage_settings(config: RunConfig, stage: StageName) -> dict[str, Any]:
    """The configured part of a stage's key. Sources are known by what they hold, not by where they lie."""
    settings = config.settings(stage)
    if stage == "ingestion":
        settings["sources"] = describe_sources(config.ingestion.sources)
    return settings


def plan_stages(
    store: ArtifactStore, config: RunConfig, refresh: Collection[StageName] = ()
) -> dict[StageName, StagePlan]:
    """Work out all keys from the configuration alone and look each one up in the store."""
    plans: dict[StageName, StagePlan] = {}
    for stage in STAGES:
        settings = stage_settings(config, stage)
        inputs = {name: plans[name].ref.key for name in INPUTS[stage]}
        key = artifact_key(stage, settings, inputs)
        if store.find(stage, key) is None:
            reason = "; ".join(_differences(store, stage, settings, inputs))
            plans[stage] = StagePlan(store.ref(stage, key), "run", reason)
        elif stage in refresh:
            plans[stage] = StagePlan(store.ref(stage, key), "run", "refresh was asked for")
        else:
            plans[stage] = StagePlan(store.ref(stage, key), "reuse", "stored already")
    return plans


def select_stages(only: StageName | None, from_stage: StageName | None) -> tuple[StageName, ...]:
    """The stages a run is to go through: one, those from one on, or all."""
    if only and from_stage:
        raise ValueError(f"give either only ({only}) or from ({from_stage}), not both")
    if only:
        return (only,)
    return STAGES[STAGES.index(from_stage) :] if from_stage else STAGES


def _differences(
    store: ArtifactStore, stage: StageName, settings: Mapping[str, Any], inputs: Mapping[StageName, str]
) -> Iterator[str]:
    """Why the artifact that `latest` points at is not the one wanted."""
    tag = read_tag(store, stage, "latest")
    last = next((m for m in store.manifests(stage) if tag is None or m.key == tag.ref.key), None)
    if tag and tag.ref.key == artifact_key(stage, settings, inputs):
        yield "it was there, but files of it are missing"
    elif last is None:
        yield "nothing stored yet"
    else:
        if last.version != VERSIONS[stage]:
            yield f"the stage's code is at version {VERSIONS[stage]}, was {last.version}"
        yield from _changed_settings(stage, last.settings, settings)
        yield from (f"input {name} changed" for name, key in inputs.items() if last.inputs.get(name) != key)


def _changed_settings(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from _changed_settings(f"{path}.{name}", old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _changed_settings(f"{path}.{position}", before, after)
    elif old != new:
        yield f"{path}: {old} → {new}"
