"""Running stages in order and keeping the run's record."""

import time
from collections.abc import Collection

from gif_core.artifacts import ArtifactMissingError, ArtifactStore
from gif_core.artifacts.runs import begin_run, save_run
from gif_core.planning import StagePlan, plan_stages
from schemas.artifacts import ArtifactRef, RunRecord, StageRecord
from schemas.run import RunConfig
from schemas.stages import INPUTS, StageName
from tasks.embedding import embedding
from tasks.evaluation import evaluation
from tasks.ingestion import ingestion
from tasks.reporting import reporting
from tasks.separation import separation
from tasks.stage import StageTask
from tasks.tokenization import tokenization
from tasks.training import training

TASKS: dict[StageName, StageTask] = {
    "ingestion": ingestion,
    "embedding": embedding,
    "separation": separation,
    "tokenization": tokenization,
    "training": training,
    "evaluation": evaluation,
    "reporting": reporting,
}


def run_stages(
    config: RunConfig, selected: Collection[StageName], refresh: Collection[StageName] = ()
) -> RunRecord:
    """Run the selected stages on what the store holds, and write down after each what came of it."""
    store = ArtifactStore(config.store)
    refs = _find_inputs(plan_stages(store, config), selected)
    record = begin_run(store, config)
    try:
        for stage in selected:
            record = save_run(store, record, current=stage)
            refs[stage], done = _run_stage(stage, config, refs, refresh=stage in refresh)
            record = save_run(store, record, stages={**record.stages, stage: done})
    except BaseException as error:
        save_run(store, record, state="failed", error=f"{type(error).__name__}: {error}")
        raise
    return save_run(store, record, state="completed", current=None)


def _find_inputs(
    plans: dict[StageName, StagePlan], selected: Collection[StageName]
) -> dict[StageName, ArtifactRef]:
    """What the selected stages read from stages that are not selected: it must be in the store."""
    needed = {name for stage in selected for name in INPUTS[stage]} - set(selected)
    missing = [name for name in plans if name in needed and plans[name].action == "run"]
    if missing:
        raise ArtifactMissingError(
            f"{', '.join(selected)} needs {', '.join(missing)}, which this configuration has not made yet: "
            f"run from there with --from {missing[0]}"
        )
    return {name: plan.ref for name, plan in plans.items() if name in needed}


def _run_stage(
    stage: StageName, config: RunConfig, refs: dict[StageName, ArtifactRef], *, refresh: bool
) -> tuple[ArtifactRef, StageRecord]:
    started = time.monotonic()
    inputs = {name: refs[name] for name in INPUTS[stage]}
    state = TASKS[stage](config, inputs, refresh, return_state=True)
    ref: ArtifactRef = state.result()
    action = "reused" if state.name == "Cached" else "computed"
    return ref, StageRecord(key=ref.key, action=action, seconds=time.monotonic() - started)
