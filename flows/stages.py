"""Running stages in order and keeping the run's record."""

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from prefect.logging.handlers import APILogHandler

from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.runs import begin_run, save_run
from gif_core.planning import find_inputs, plan_stages
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

NOTHING: Final[Mapping[StageName, ArtifactRef]] = MappingProxyType({})


def run_stages(config: RunConfig, selected: Collection[StageName], refresh: Collection[StageName] = ()) -> RunRecord:
    """Run the selected stages on what the store holds, and write down after each what came of it."""
    store = ArtifactStore(config.store)
    with logs_forwarded():
        refs = find_inputs(plan_stages(store, config, selected), selected)
        return continue_run(store, begin_run(store, config), config, selected, refs, refresh)


def continue_run(
    store: ArtifactStore,
    record: RunRecord,
    config: RunConfig,
    selected: Collection[StageName],
    given: Mapping[StageName, ArtifactRef] = NOTHING,
    refresh: Collection[StageName] = (),
) -> RunRecord:
    """Run more stages of a run, on what it has made so far and on what is given."""
    refs = {**given, **refs_of(store, record)}
    record = save_run(store, record, config=config.model_dump(mode="json"), state="running")
    try:
        for stage in selected:
            record = save_run(store, record, current=stage)
            refs[stage], done = run_stage(stage, config, refs, refresh=stage in refresh)
            record = save_run(store, record, stages={**record.stages, stage: done})
    except BaseException as error:
        state = "failed" if isinstance(error, Exception) else "interrupted"
        save_run(store, record, state=state, error=f"{type(error).__name__}: {error}")
        raise
    return save_run(store, record, state="completed", current=None)


@contextmanager
def logs_forwarded() -> Iterator[None]:
    """Meanwhile, lines of every layer go to Prefect's server, where the run's page shows them."""
    handler = APILogHandler()
    loggers = [logging.getLogger(layer) for layer in ("flows", "tasks", "gif_core")]
    for logger in loggers:
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def refs_of(store: ArtifactStore, record: RunRecord) -> dict[StageName, ArtifactRef]:
    """What a run has made or reused."""
    return {stage: store.ref(stage, done.key) for stage, done in record.stages.items()}


def run_stage(
    stage: StageName, config: RunConfig, refs: Mapping[StageName, ArtifactRef], *, refresh: bool = False
) -> tuple[ArtifactRef, StageRecord]:
    """Run one stage on what is given, without writing it down."""
    started = time.monotonic()
    inputs = {name: refs[name] for name in INPUTS[stage]}
    state = TASKS[stage](config, inputs, refresh, return_state=True)
    ref: ArtifactRef = state.result()
    action = "reused" if state.name == "Cached" else "computed"
    return ref, StageRecord(key=ref.key, action=action, seconds=time.monotonic() - started)
