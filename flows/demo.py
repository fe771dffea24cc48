"""The flow `demo`: the pipeline on synthetic faces, and beside it a classifier that is trained with the same budget."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

from prefect import flow
from prefect.client.orchestration import get_client

from flows.forked import run_forked, watched_pipe
from flows.stages import Run, flow_store
from gif_core.artifacts import ArtifactStore, begin_run
from gif_core.planning import is_scored
from gif_core.runtime import milestones_beside, with_log_fields
from schemas.artifacts import RunRecord, StageRecord
from schemas.errors import GifError
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName

SCORED: Final[tuple[StageName, ...]] = STAGES[: STAGES.index("reporting")]
BESIDE: Final[tuple[StageName, ...]] = ("training", "evaluation")
"""Stages of which both models have their own."""
TITLE: Final = "CosFace"


@flow(name="demo", validate_parameters=True)
def demo(config: RunConfig, rival: RunConfig) -> RunRecord:
    """Run `config`, and beside its training and evaluation those of `rival`; the report shows both.

    Two trainings on half of the processors each are as fast as one after the other on all of them, and lose less to
    other programs: threads of one training wait for each other at every step. On a GPU the second one uses what the
    first leaves, as no demo's network fills a GPU.
    """
    with flow_store(config) as store, _open_rival(rival) as beside:
        return _RunBeside(store, config, beside).go_through(config, STAGES)


@flow(name="rival", flow_run_name=TITLE)
def rival(config: RunConfig) -> RunRecord:
    """All stages but the report."""
    with flow_store(config) as store:
        return Run.begin(store, config).go_through(config, SCORED)


class _RunBeside(Run):
    """A run that starts the rival when its own training begins, and waits for it before its report."""

    def __init__(self, store: ArtifactStore, config: RunConfig, rival: "_Rival") -> None:
        super().__init__(store, begin_run(store, config))
        self.rival = rival

    def run_stage(self, stage: StageName, config: RunConfig, *, refresh: bool = False) -> StageRecord:
        if stage in BESIDE:
            self.rival.start()
            config = _with_half_the_workers(config)
        if stage == "reporting":
            self.rival.wait()
        return super().run_stage(stage, config, refresh=refresh)


class _Rival:
    """A run in a process of its own, whose milestones are told here."""

    def __init__(self, config: RunConfig, thread: ThreadPoolExecutor, watched: Connection) -> None:
        self.config, self.thread, self.watched = _with_half_the_workers(config), thread, watched
        self.error: Future[str | None] | None = None

    def start(self) -> None:
        """Start it, unless it has been started or is stored."""
        if self.error is None and not is_scored(self.config):
            with get_client(sync_client=True) as client:
                server = str(client.api_url)
            self.error = self.thread.submit(with_log_fields(self._run), server)

    def wait(self) -> None:
        """Wait for its scores; an error of it is raised here."""
        if self.error and (error := self.error.result()):
            raise GifError(f"{TITLE}, which was trained beside this run, failed: {error}")

    def _run(self, server: str) -> str | None:
        error = run_forked(_score, self.config, server=server, watched=self.watched, tell=_tell)
        if error and not self.watched.closed:
            _tell(f"failed: {error}")
        return error


@contextmanager
def _open_rival(config: RunConfig) -> Iterator[_Rival]:
    """The rival, not yet started; it ends with this block."""
    with ThreadPoolExecutor(1) as thread, watched_pipe() as watched:
        yield _Rival(config, thread, watched)


def _score(config: RunConfig) -> None:
    rival(config)


def _tell(text: str) -> None:
    """Pass on a milestone of the rival, but not that it reuses what both share."""
    if not text.endswith(": reused"):
        milestones_beside.info("%s: %s", TITLE, text.replace("training: epoch", "epoch"))


def _with_half_the_workers(config: RunConfig) -> RunConfig:
    workers = max(1, config.execution.workers // 2)
    return config.model_copy(update={"execution": config.execution.model_copy(update={"workers": workers})})
