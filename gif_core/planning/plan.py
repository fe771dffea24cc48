"""What a run would do: the key of every stage, whether it is stored, and if not, which change caused that."""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from gif_core.artifacts import Artifact, ArtifactMissingError, ArtifactStore, read_tag
from gif_core.planning.keys import LENGTH_SETTINGS, Inputs, StageIdentity, identify_stage, make_identity
from schemas.artifacts import ArtifactRef
from schemas.run import RunConfig
from schemas.stages import INPUTS, STAGES, VERSIONS, StageName

logger = logging.getLogger(__name__)
READ_FROM: Final[dict[StageName, str]] = {"ingestion": "a source of faces", "evaluation": "an evaluation set"}
"""The stages that read files from outside the store."""
BESIDE: Final = "reporting.beside"


@dataclass(frozen=True)
class StagePlan:
    """One stage of a run that has not begun."""

    ref: ArtifactRef
    action: Literal["run", "reuse"]
    reason: str


def plan_stages(
    store: ArtifactStore,
    config: RunConfig,
    selected: Collection[StageName] = STAGES,
    refresh: Collection[StageName] = (),
    stages: Collection[StageName] = STAGES,
) -> dict[StageName, StagePlan]:
    """Compute the keys of these `stages` from the configuration alone and look each one up in the store."""
    plans: dict[StageName, StagePlan] = {}
    known: dict[StageName, Artifact | StageIdentity] = {}
    for stage in (name for name in STAGES if name in stages):
        inputs = {name: known[name] for name in INPUTS[stage]}
        identity = _planned_identity(store, config, stage, selected, inputs)
        found = store.look_up(identity.ref)
        reason = _reason_to_run(store, identity, inputs, found, refresh=stage in refresh)
        if found and reason is None:
            plans[stage], known[stage] = StagePlan(identity.ref, "reuse", "stored already"), found
        else:
            plans[stage], known[stage] = StagePlan(identity.ref, "run", reason or ""), identity
    return plans


def _reason_to_run(
    store: ArtifactStore, identity: StageIdentity, inputs: Inputs, found: Artifact | None, *, refresh: bool
) -> str | None:
    if found is None:
        return "; ".join(_differences(store, identity, inputs))
    if any(found.manifest.inputs.get(name) != source for name, source in identity.made_from.items()):
        return "an input was made again and came out different"
    return "refresh was requested" if refresh else None


def _planned_identity(
    store: ArtifactStore, config: RunConfig, stage: StageName, selected: Collection[StageName], inputs: Inputs
) -> StageIdentity:
    """The identity of a stage, even if it is not selected and its files cannot be reached.

    Then the latest ingestion replaces the sources, and the latest evaluation the evaluation sets.
    """
    try:
        return identify_stage(store, config, stage, inputs)
    except OSError:
        if stage in selected or stage not in READ_FROM:
            raise
        tag = read_tag(store, stage, "latest")
        if tag is not None and store.find(stage, tag.ref.key):
            logger.warning("%s cannot be reached: using the artifact last made from it, %s", READ_FROM[stage], tag.ref)
            return make_identity(store, stage, store.open(store.ref(stage, tag.ref.key)).settings, inputs)
        if stage == "ingestion":
            raise
        return make_identity(store, stage, config.settings(stage), inputs)


def upstream_of(selected: Collection[StageName]) -> set[StageName]:
    """The stages that these read from, directly or indirectly."""
    found: set[StageName] = set()
    for stage in reversed(STAGES):
        if stage in selected or stage in found:
            found |= set(INPUTS[stage])
    return found


def stored_inputs(
    store: ArtifactStore, config: RunConfig, selected: Collection[StageName]
) -> dict[StageName, ArtifactRef]:
    """The stored artifacts that the selected stages read from stages that are not selected."""
    needed = {name for stage in selected for name in INPUTS[stage]} - set(selected)
    if not needed:
        return {}
    plans = plan_stages(store, config, selected, stages=upstream_of(selected))
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
    """The stages that a run executes: one, all from one on, or all."""
    if only and from_stage:
        raise ValueError(f"give either only ({only}) or from ({from_stage}), not both")
    selected: tuple[StageName, ...] = STAGES[STAGES.index(from_stage) :] if from_stage else STAGES
    selected = (only,) if only else selected
    outside = [stage for stage in refresh if stage not in selected]
    if outside:
        raise ValueError(f"refresh names {', '.join(outside)}, but only {', '.join(selected)} would run")
    return selected


def _differences(store: ArtifactStore, identity: StageIdentity, inputs: Inputs) -> Iterator[str]:
    """Differences between the artifact tagged `latest` and the requested one."""
    stage = identity.ref.stage
    tag = read_tag(store, stage, "latest")
    last = next((m for m in store.manifests(stage) if tag is None or m.key == tag.ref.key), None)
    if tag and tag.ref.key == identity.ref.key:
        yield "it was there, but files of it are missing or damaged"
    elif last is None:
        yield "nothing stored yet"
    else:
        if last.version != VERSIONS[stage]:
            yield f"the stage's code is at version {VERSIONS[stage]}, was {last.version}"
        yield from _changed_settings(stage, *_comparable(last.settings, identity.settings))
        before = {name: source.key for name, source in last.inputs.items()}
        yield from (f"input {name} changed" for name, given in inputs.items() if before.get(name) != given.ref.key)


def _comparable(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings of both without the code length while the new one is not resolved: it depends on other faces."""
    left_out = LENGTH_SETTINGS if new.get("length", 0) is None else ()
    return ({name: value for name, value in given.items() if name not in left_out} for given in (old, new))


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
