"""What a run would do: the key of every stage, whether it is stored already, and what made the difference."""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from gif_core.artifacts import ArtifactMissingError, ArtifactStore, artifact_key, read_tag, sha256_of
from gif_core.embedding.encoders import weights_file
from gif_core.ingestion import describe_readers, find_base
from gif_core.protocols.sets import describe_set
from gif_core.readers import open_reader
from gif_core.reporting import Scored, find_comparable
from schemas.artifacts import ArtifactRef, MadeFrom
from schemas.run import RunConfig
from schemas.stages import INPUTS, STAGES, VERSIONS, StageName

logger = logging.getLogger(__name__)
READ_FROM: Final[dict[StageName, str]] = {"ingestion": "a source of faces", "evaluation": "a set of evaluation"}
"""The stages that read what no stage has made."""
BESIDE: Final = "reporting.beside"


@dataclass(frozen=True)
class StagePlan:
    """One stage of a run that has not begun."""

    ref: ArtifactRef
    action: Literal["run", "reuse"]
    reason: str


def stage_settings(
    store: ArtifactStore, config: RunConfig, stage: StageName, scored: Scored | None = None
) -> dict[str, Any]:
    """The configured part of a stage's key. Sources and weights are known by what they hold, not by their place.

    A report also shows other evaluations: those that can be compared with the one that it reports, `scored`.
    """
    settings = config.settings(stage)
    if stage == "ingestion":
        readers = [open_reader(source) for source in config.ingestion.sources]
        settings["sources"] = describe_readers(readers)
        settings["grown_from"] = find_base(store, settings, readers) if settings.pop("incremental") else None
    if stage == "evaluation":
        settings["sets"] = [describe_set(given) for given in config.evaluation.sets]
    if stage == "reporting":
        settings["beside"] = find_comparable(store, scored) if scored and config.reporting.compare else {}
    weights = weights_file(config.embedding) if stage == "embedding" else None
    if weights is not None:
        settings["pretrained"] = f"sha256:{sha256_of(weights)}"
    return settings


def plan_stages(
    store: ArtifactStore,
    config: RunConfig,
    selected: Collection[StageName] = STAGES,
    refresh: Collection[StageName] = (),
) -> dict[StageName, StagePlan]:
    """Work out all keys from the configuration alone and look each one up in the store."""
    plans: dict[StageName, StagePlan] = {}
    made: dict[StageName, MadeFrom] = {}
    scored: Scored | None = None
    for stage in STAGES:
        settings = _planned_settings(store, config, stage, selected, scored)
        keys = {name: plans[name].ref.key for name in INPUTS[stage]}
        ref = store.ref(stage, artifact_key(stage, settings, keys))
        known = {name: made[name] for name in INPUTS[stage] if name in made}
        scored = Scored(ref.key, keys["ingestion"], settings) if stage == "evaluation" else scored
        if store.find(stage, ref.key) is None:
            plans[stage] = StagePlan(ref, "run", "; ".join(_differences(store, stage, settings, keys)))
        elif store.find(stage, ref.key, known) is None:
            plans[stage] = StagePlan(ref, "run", "an input was made again and came out different")
        elif stage in refresh:
            plans[stage] = StagePlan(ref, "run", "refresh was asked for")
        else:
            plans[stage] = StagePlan(ref, "reuse", "stored already")
            made[stage] = store.open(ref).made_from
    return plans


def _planned_settings(
    store: ArtifactStore,
    config: RunConfig,
    stage: StageName,
    selected: Collection[StageName],
    scored: Scored | None,
) -> dict[str, Any]:
    """The settings of a stage.

    Where nothing is to be ingested the sources need not be there: the faces that were ingested last stand for them.
    So it is with the sets of evaluation; without earlier scores a stage that is not selected has none to offer.
    """
    try:
        return stage_settings(store, config, stage, scored)
    except OSError:
        if stage in selected or stage not in READ_FROM:
            raise
        tag = read_tag(store, stage, "latest")
        if tag is not None and store.find(stage, tag.ref.key):
            logger.warning("%s cannot be reached: using what was made of it last, %s", READ_FROM[stage], tag.ref)
            return store.open(store.ref(stage, tag.ref.key)).manifest.settings
        if stage == "ingestion":
            raise
        return config.settings(stage)


def find_inputs(plans: Mapping[StageName, StagePlan], selected: Collection[StageName]) -> dict[StageName, ArtifactRef]:
    """What the selected stages read from stages that are not selected: it must be in the store."""
    needed = {name for stage in selected for name in INPUTS[stage]} - set(selected)
    missing = [name for name in plans if name in needed and plans[name].action == "run"]
    if missing:
        raise ArtifactMissingError(
            f"{', '.join(selected)} needs {', '.join(missing)}, which this configuration has not made yet: "
            f"run from there with --from {missing[0]}"
        )
    return {name: plan.ref for name, plan in plans.items() if name in needed}


def select_stages(
    only: StageName | None, from_stage: StageName | None, refresh: Collection[StageName] = ()
) -> tuple[StageName, ...]:
    """The stages a run is to go through: one, those from one on, or all."""
    if only and from_stage:
        raise ValueError(f"give either only ({only}) or from ({from_stage}), not both")
    selected: tuple[StageName, ...] = STAGES[STAGES.index(from_stage) :] if from_stage else STAGES
    selected = (only,) if only else selected
    outside = [stage for stage in refresh if stage not in selected]
    if outside:
        raise ValueError(f"refresh names {', '.join(outside)}, but only {', '.join(selected)} would run")
    return selected


def _differences(
    store: ArtifactStore, stage: StageName, settings: Mapping[str, Any], inputs: Mapping[StageName, str]
) -> Iterator[str]:
    """Why the artifact that `latest` points at is not the one wanted."""
    tag = read_tag(store, stage, "latest")
    last = next((m for m in store.manifests(stage) if tag is None or m.key == tag.ref.key), None)
    if tag and tag.ref.key == artifact_key(stage, settings, inputs):
        yield "it was there, but files of it are missing or damaged"
    elif last is None:
        yield "nothing stored yet"
    else:
        if last.version != VERSIONS[stage]:
            yield f"the stage's code is at version {VERSIONS[stage]}, was {last.version}"
        yield from _changed_settings(stage, last.settings, settings)
        before = {name: source.key for name, source in last.inputs.items()}
        yield from (f"input {name} changed" for name, key in inputs.items() if before.get(name) != key)


def _changed_settings(path: str, old: Any, new: Any) -> Iterator[str]:
    if path == BESIDE and old != new:
        yield "other runs are there to be shown beside it"
    elif isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from _changed_settings(f"{path}.{name}", old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _changed_settings(f"{path}.{position}", before, after)
    elif old != new:
        yield f"{path}: {old} → {new}"
