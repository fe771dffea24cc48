"""One run: its stages in order, the artifacts they made or reused, and the run record."""

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from prefect.client.schemas.objects import State

from flows.credentials import load_credentials
from flows.log_forwarding import logs_forwarded
from gif_core.artifacts import (
    Artifact,
    ArtifactStore,
    FileDamagedError,
    begin_run,
    condemning,
    naming_full_disk,
    save_run,
)
from gif_core.planning import StageIdentity, check_faces, identify_stage, stored_inputs
from gif_core.runtime import MemoryWatch, duration, log_fields, milestones
from schemas.addresses import hide_credentials
from schemas.artifacts import ArtifactRef, RunRecord, StageRecord
from schemas.execution import ExecutionConfig
from schemas.run import RunConfig
from schemas.stages import INPUTS, STAGES, StageName
from tasks.results import keep_results_in
from tasks.retries import patience
from tasks.reuse import reuse
from tasks.stage import StageTask

logger = logging.getLogger(__name__)
BEFORE_TRAINING: Final[tuple[StageName, ...]] = ("embedding", "separation", "tokenization", "training")
NOTHING: Final[Mapping[StageName, ArtifactRef]] = MappingProxyType({})


@contextmanager
def flow_store(config: RunConfig) -> Iterator[ArtifactStore]:
    """The store of a flow run, with credentials loaded, Prefect's results kept in it and log lines forwarded."""
    load_credentials()
    store = ArtifactStore(config.store)
    keep_results_in(store.storage.url)
    with logs_forwarded(), naming_full_disk(store.storage.url):
        yield store


class Run:
    """A run's record, the artifacts of its stages so far, and the opened ones among them."""

    def __init__(
        self, store: ArtifactStore, record: RunRecord, refs: Mapping[StageName, ArtifactRef] = NOTHING
    ) -> None:
        """Continue a run; `refs` are the artifacts that its stages may read."""
        self.store, self.record, self.refs = store, record, dict(refs)
        self.opened: dict[StageName, Artifact] = {}
        self.states: dict[StageName, State[Any]] = {}
        self.trains = False
        """Whether training is among the stages, so that the faces must suffice for it."""

    @classmethod
    def begin(cls, store: ArtifactStore, config: RunConfig, selected: Collection[StageName] = STAGES) -> "Run":
        """Record that a run has begun; inputs from stages that are not selected must be stored."""
        refs = stored_inputs(store, config, selected)
        return cls(store, begin_run(store, config), refs)

    def go_through(
        self,
        config: RunConfig,
        selected: Sequence[StageName],
        refresh: Collection[StageName] = (),
        *,
        ends: bool = True,
    ) -> RunRecord:
        """Run these stages in order; with `ends=False` the run continues afterwards."""
        self.opened.clear()
        self.trains = "training" in selected
        self._note(config=config.model_dump(mode="json"), state="running")
        waiting, to_refresh, repaired = list(selected), set(refresh), set[str]()
        while waiting:
            stage = waiting.pop(0)
            self._note(current=stage)
            where = self.store.storage.url
            with self.end_recorded(), naming_full_disk(where), log_fields(run=self.record.run_id, stage=stage):
                try:
                    done = self.run_stage(stage, config, refresh=stage in to_refresh)
                except FileDamagedError as error:
                    waiting = _go_back(error, selected, repaired)
                    self.opened.clear()
                    continue
            to_refresh.discard(stage)
            self._note(stages={**self.record.stages, stage: done})
            milestones.info("%s: %s", stage, _ending(done))
        self.record = save_run(self.store, self.record, state="completed" if ends else "running", current=None)
        return self.record

    def run_stage(self, stage: StageName, config: RunConfig, *, refresh: bool = False) -> StageRecord:
        """Reuse or compute the artifact of one stage; the caller adds the result to the record."""
        started = time.monotonic()
        identity, found = self._look_up(stage, config)
        if found and not refresh:
            before = self._states_before(stage)
            self.states[stage] = reuse(found, self._open_inputs(stage), self.store, config.execution, before)
            self.refs[stage], self.opened[stage] = found.ref, found
            return StageRecord(key=found.ref.key, action="reused", seconds=time.monotonic() - started)
        milestones.info("%s begins", stage)
        save_run(self.store, self.record)
        self._check_faces(stage, config)
        inputs = {name: self.refs[name] for name in INPUTS[stage]}
        with MemoryWatch() as memory:
            state = _task_of(stage, config.execution)(
                config, inputs, identity, refresh, wait_for=self._states_before(stage), return_state=True
            )
        self.states[stage] = state
        ref: ArtifactRef = state.result()
        self.refs[stage] = ref
        self.opened.pop(stage, None)
        done = StageRecord(key=ref.key, action="reused", seconds=time.monotonic() - started, peak_memory=memory.peak)
        if state.name == "Cached":
            return done
        made = self.store.open(ref).manifest
        metrics = {"action": "computed", "bytes": made.size, "images_per_second": made.images_per_second}
        return done.model_copy(update=metrics)

    def _states_before(self, stage: StageName) -> list[State[Any]]:
        """The states of this run's stages that a stage reads from, between which Prefect's UI draws arrows."""
        return [self.states[name] for name in INPUTS[stage] if name in self.states]

    def _check_faces(self, stage: StageName, config: RunConfig) -> None:
        """Before a stage that leads to training: raise if the faces cannot be trained on, warn of few steps."""
        if self.trains and stage in BEFORE_TRAINING:
            with condemning(self.store):
                warnings = check_faces(config, self.store.open(self.refs["ingestion"]))
            for warning in warnings:
                logger.warning("%s", warning)

    def _look_up(self, stage: StageName, config: RunConfig) -> tuple[StageIdentity | None, Artifact | None]:
        """The identity of a stage and its artifact, if that is stored and up to date.

        An identity that cannot be computed here is left to the stage's task, which tries again and reports the error.
        """
        identity = None
        try:
            identity = identify_stage(self.store, config, stage, self._open_inputs(stage))
            return identity, self.store.look_up(identity.ref, identity.made_from)
        except Exception as error:
            logger.debug("%s could not be looked up: %s", stage, error)
            return identity, None

    def _open_inputs(self, stage: StageName) -> dict[StageName, Artifact]:
        """The artifacts that a stage reads, each opened once."""
        for name in INPUTS[stage]:
            if name not in self.opened or self.opened[name].ref != self.refs[name]:
                self.opened[name] = self.store.open(self.refs[name])
        return {name: self.opened[name] for name in INPUTS[stage]}

    @contextmanager
    def end_recorded(self) -> Iterator[None]:
        """Write an error or an interrupt to the run's record, for processes that wait for the run."""
        try:
            yield
        except BaseException as error:
            state = "failed" if isinstance(error, Exception) else "interrupted"
            self._record_end(state, f"{type(error).__name__}: {error}")
            raise

    def _record_end(self, state: str, error: str) -> None:
        """Save how the run ended; a store that cannot be written to does not hide the error itself."""
        try:
            with self.store.storage.hurried():
                save_run(self.store, self.record, state=state, error=hide_credentials(error))
        except OSError as fault:
            logger.warning("run %s could not be recorded as %s: %s", self.record.run_id, state, fault)

    def _note(self, **changes: object) -> None:
        """Change the record in memory; it is saved when a stage begins to compute and when the run ends."""
        self.record = self.record.model_copy(update=changes)


def _go_back(error: FileDamagedError, selected: Sequence[StageName], repaired: set[str]) -> list[StageName]:
    """The selected stages from the damaged one on; raise the error if the artifact cannot be computed again.

    That is the case if its stage is not selected, or if it was already repaired once in this run.
    """
    if error.ref.stage not in selected or error.ref.key in repaired:
        raise error
    repaired.add(error.ref.key)
    logger.warning(
        "%s of %s is damaged (%s): going back to %s", error.file.name, error.ref, error.fault, error.ref.stage
    )
    return list(selected[selected.index(error.ref.stage) :])


def _ending(done: StageRecord) -> str:
    """How a stage ended, for a line of a log."""
    return done.action if done.action == "reused" else f"{done.action} in {duration(done.seconds)}"


def _task_of(stage: StageName, execution: ExecutionConfig) -> StageTask:
    """The stage's task with the retries and the timeout of this run.

    Its module imports heavy libraries such as torch, so it is imported only if the stage must be computed.
    """
    task: StageTask = getattr(import_module(f"tasks.{stage}"), stage)
    return task.with_options(timeout_seconds=execution.timeouts.get(stage), **patience(execution))
