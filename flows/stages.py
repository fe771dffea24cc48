"""Running stages in order and keeping the run's record."""

import itertools
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Final

from prefect.logging.handlers import APILogHandler

from flows.credentials import load_credentials
from gif_core.artifacts import Artifact, ArtifactStore, FileDamagedError, begin_run, save_run
from gif_core.planning import find_inputs, plan_stages
from gif_core.runtime import JsonLines, MemoryWatch, lines_about
from schemas.addresses import hide_credentials
from schemas.artifacts import ArtifactRef, RunRecord, StageRecord
from schemas.execution import ExecutionConfig
from schemas.run import RunConfig
from schemas.stages import INPUTS, StageName
from tasks.results import keep_results_in
from tasks.retries import patience
from tasks.reuse import find_stored, reuse
from tasks.stage import StageTask

logger = logging.getLogger(__name__)

NOTHING: Final[Mapping[StageName, ArtifactRef]] = MappingProxyType({})


def run_stages(config: RunConfig, selected: Collection[StageName], refresh: Collection[StageName] = ()) -> RunRecord:
    """Run the selected stages on what the store holds, and write down what came of it."""
    load_credentials()
    store = ArtifactStore(config.store)
    keep_results_in(store.storage.url)
    outside = {name for stage in selected for name in INPUTS[stage]} - set(selected)
    with logs_forwarded():
        refs = find_inputs(plan_stages(store, config, selected), selected) if outside else {}
        return continue_run(store, begin_run(store, config), config, selected, refs, refresh)


def continue_run(
    store: ArtifactStore,
    record: RunRecord,
    config: RunConfig,
    selected: Collection[StageName],
    given: Mapping[StageName, ArtifactRef] = NOTHING,
    refresh: Collection[StageName] = (),
    *,
    ends: bool = True,
) -> RunRecord:
    """Run more stages of a run, on what it has made so far and on what is given; unless it `ends`, more will follow."""
    refs, opened = {**given, **refs_of(store, record)}, dict[StageName, Artifact]()
    waiting, anew, gone_back = list(selected), set(refresh), set[str]()
    record = record.model_copy(update={"config": config.model_dump(mode="json"), "state": "running"})
    while waiting:
        stage = waiting.pop(0)
        at_work = record.model_copy(update={"current": stage})
        with ending_recorded(store, at_work), lines_about(run=record.run_id, stage=stage):
            begins = partial(save_run, store, at_work)
            try:
                refs[stage], done = run_stage(stage, config, refs, begins, refresh=stage in anew, opened=opened)
            except FileDamagedError as error:
                waiting = _go_back(error, list(selected), gone_back)
                opened.clear()
                continue
        anew.discard(stage)
        record = record.model_copy(update={"stages": {**record.stages, stage: done}})
    return save_run(store, record, state="completed" if ends else "running", current=None)


@contextmanager
def ending_recorded(store: ArtifactStore, record: RunRecord) -> Iterator[None]:
    """Whatever ends a run meanwhile stands in its record, for others who wait for it."""
    try:
        yield
    except BaseException as error:
        state = "failed" if isinstance(error, Exception) else "interrupted"
        _record_end(store, record, state, f"{type(error).__name__}: {error}")
        raise


def _go_back(error: FileDamagedError, selected: list[StageName], gone_back: set[str]) -> list[StageName]:
    """The stages from the one on whose artifact is damaged and out of use; not twice, and none that is not selected."""
    if error.ref.stage not in selected or error.ref.key in gone_back:
        raise error
    gone_back.add(error.ref.key)
    logger.warning(
        "%s of %s is damaged (%s): going back to %s", error.file.name, error.ref, error.fault, error.ref.stage
    )
    return selected[selected.index(error.ref.stage) :]


def _record_end(store: ArtifactStore, record: RunRecord, state: str, error: str) -> None:
    """Write down how a run ended, unless that is just what cannot be done."""
    try:
        with store.storage.hurried():
            save_run(store, record, state=state, error=hide_credentials(error))
    except OSError as fault:
        logger.warning("run %s could not be recorded as %s: %s", record.run_id, state, fault)


@contextmanager
def logs_forwarded() -> Iterator[None]:
    """Meanwhile, lines of every layer go to Prefect's server, where the run's page shows them.

    With `GIF_LOG` in the environment they are also added to that file, one JSON object each.
    """
    handlers: list[logging.Handler] = [APILogHandler()]
    if path := os.environ.get("GIF_LOG"):
        handlers.append(logging.FileHandler(path, encoding="utf-8"))
        handlers[-1].setFormatter(JsonLines())
    loggers = [logging.getLogger(layer) for layer in ("flows", "tasks", "gif_core")]
    for logger, handler in itertools.product(loggers, handlers):
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, handler in itertools.product(loggers, handlers):
            logger.removeHandler(handler)
        for handler in handlers[1:]:
            handler.close()


def _with_patience(stage: StageName, execution: ExecutionConfig) -> StageTask:
    """The stage's task, tried again and stopped as the run is told to.

    Its module brings along what the stage computes with, torch and more, and so is imported when there is work to do.
    """
    task: StageTask = getattr(import_module(f"tasks.{stage}"), stage)
    return task.with_options(timeout_seconds=execution.timeouts.get(stage), **patience(execution))


def refs_of(store: ArtifactStore, record: RunRecord) -> dict[StageName, ArtifactRef]:
    """What a run has made or reused."""
    return {stage: store.ref(stage, done.key) for stage, done in record.stages.items()}


def run_stage(
    stage: StageName,
    config: RunConfig,
    refs: Mapping[StageName, ArtifactRef],
    begins: Callable[[], object],
    *,
    refresh: bool = False,
    opened: dict[StageName, Artifact] | None = None,
) -> tuple[ArtifactRef, StageRecord]:
    """Run one stage on what is given, and call `begins` first if there is work to do.

    What came of it is not written down here. `opened` is what the stages of a run open but once.
    """
    started = time.monotonic()
    inputs = {name: refs[name] for name in INPUTS[stage]}
    opened = {} if opened is None else opened
    reused = None if refresh else _reuse(stage, config, inputs, opened)
    if reused:
        return reused, StageRecord(key=reused.key, action="reused", seconds=time.monotonic() - started)
    begins()
    with MemoryWatch() as memory:
        state = _with_patience(stage, config.execution)(config, inputs, refresh, return_state=True)
    opened.pop(stage, None)
    ref: ArtifactRef = state.result()
    done = StageRecord(key=ref.key, action="reused", seconds=time.monotonic() - started, peak_memory=memory.peak)
    if state.name == "Cached":
        return ref, done
    made = ArtifactStore(config.store).open(ref).manifest
    metrics = {"action": "computed", "bytes": made.size, "images_per_second": made.images_per_second}
    return ref, done.model_copy(update=metrics)


def _reuse(
    stage: StageName, config: RunConfig, inputs: Mapping[StageName, ArtifactRef], opened: dict[StageName, Artifact]
) -> ArtifactRef | None:
    """The stage's artifact, if it is stored already and made from what its inputs hold now."""
    store = ArtifactStore(config.store)
    for name, ref in inputs.items():
        if name not in opened or opened[name].ref != ref:
            opened[name] = store.open(ref)
    given = {name: opened[name] for name in inputs}
    found = find_stored(store, stage, config, given)
    if found is None:
        return None
    reuse(store, found, given, config.execution)
    opened[stage] = found
    return found.ref
