"""Running stages in order and keeping the run's record."""

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from prefect.logging.handlers import APILogHandler
from prefect.tasks import exponential_backoff

from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.runs import begin_run, save_run
from gif_core.planning import find_inputs, plan_stages
from schemas.artifacts import ArtifactRef, RunRecord, StageRecord
from schemas.execution import ExecutionConfig
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

JITTER = 0.3
"""Machines that lost the same server do not all come back at once."""


def run_stages(config: RunConfig, selected: Collection[StageName], refresh: Collection[StageName] = ()) -> RunRecord:
    """Run the selected stages on what the store holds, and write down after each what came of it."""
    store = ArtifactStore(config.store)
    with _logs_forwarded():
        refs = find_inputs(plan_stages(store, config, selected), selected)
        return _run_and_record(store, config, selected, refs, refresh)


def _run_and_record(
    store: ArtifactStore,
    config: RunConfig,
    selected: Collection[StageName],
    refs: dict[StageName, ArtifactRef],
    refresh: Collection[StageName],
) -> RunRecord:
    record = begin_run(store, config)
    try:
        for stage in selected:
            record = save_run(store, record, current=stage)
            refs[stage], done = _run_stage(stage, config, refs, refresh=stage in refresh)
            record = save_run(store, record, stages={**record.stages, stage: done})
    except BaseException as error:
        state = "failed" if isinstance(error, Exception) else "interrupted"
        save_run(store, record, state=state, error=f"{type(error).__name__}: {error}")
        raise
    return save_run(store, record, state="completed", current=None)


@contextmanager
def _logs_forwarded() -> Iterator[None]:
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


def _with_patience(stage: StageName, execution: ExecutionConfig) -> StageTask:
    """The stage's task, tried again and stopped as the run is told to."""
    return TASKS[stage].with_options(
        retries=execution.retries,
        retry_delay_seconds=exponential_backoff(execution.retry_seconds),
        retry_jitter_factor=JITTER,
        timeout_seconds=execution.timeouts.get(stage),
    )


def _run_stage(
    stage: StageName, config: RunConfig, refs: dict[StageName, ArtifactRef], *, refresh: bool
) -> tuple[ArtifactRef, StageRecord]:
    started = time.monotonic()
    inputs = {name: refs[name] for name in INPUTS[stage]}
    state = _with_patience(stage, config.execution)(config, inputs, refresh, return_state=True)
    ref: ArtifactRef = state.result()
    action = "reused" if state.name == "Cached" else "computed"
    return ref, StageRecord(key=ref.key, action=action, seconds=time.monotonic() - started)
