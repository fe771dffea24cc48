"""The task of every stage: reuse its artifact or compute it, and show in Prefect which of the two happened."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from prefect import Task, task
from prefect.artifacts import create_table_artifact
from prefect.context import TaskRunContext
from prefect.states import Completed

from gif_core.artifacts import (
    Artifact,
    ArtifactStore,
    Draft,
    Inputs,
    PublishedMeanwhileError,
    condemning,
    is_shared_out,
    move_tag,
    only_one,
)
from gif_core.planning import StageIdentity, check_room, contents_of, identify_stage, needs_of
from gif_core.runtime import GpuWatch, add_log_fields, log_fields
from schemas.artifacts import ArtifactRef
from schemas.run import RunConfig
from schemas.stages import StageName
from tasks.progress import warn_of_prefect
from tasks.results import result_key
from tasks.retries import try_again

logger = logging.getLogger(__name__)

Work = Callable[[RunConfig, Inputs, Draft], None]
Show = Callable[[Artifact, Inputs], None]
StageTask = Task[[RunConfig, dict[StageName, ArtifactRef], StageIdentity | None, bool], Any]


def stage_task(stage: StageName, *, resumes: bool = False, show: Show | None = None) -> Callable[[Work], StageTask]:
    """Turn a function that fills a draft into a task that returns an `ArtifactRef`.

    A stage that `resumes` gets the folder of an attempt that died or failed, with what it had finished. `show` adds
    the artifact to Prefect's UI, whether it was computed or reused.
    """

    def decorate(work: Work) -> StageTask:
        return task(
            name=stage,
            description=work.__doc__,
            cache_key_fn=result_key,
            refresh_cache=True,
            persist_result=True,
            result_serializer="json",
            retry_condition_fn=try_again,
        )(StageRunner(stage, work, resumes, show).run)

    return decorate


@dataclass(frozen=True)
class StageRunner:
    """A stage's work, and how it is run.

    The artifact store is the only cache: all machines share it, and it checks what is really stored. The task
    asks the store instead of Prefect's result cache, and a reused stage ends in the state Cached.
    """

    stage: StageName
    work: Work
    resumes: bool
    show: Show | None

    def run(
        self,
        config: RunConfig,
        inputs: dict[StageName, ArtifactRef],
        identity: StageIdentity | None = None,
        refresh: bool = False,
    ) -> Any:
        """Find or make the artifact of `identity`, which is computed here if the flow could not."""
        store = ArtifactStore(config.store)
        opened = {name: store.open(ref) for name, ref in inputs.items()}
        with log_fields(stage=self.stage), condemning(store):
            if identity is None or identity.made_from != contents_of(opened):
                identity = identify_stage(store, config, self.stage, opened)
            ref = identity.ref
            add_log_fields(artifact=str(ref))
            with _alone(store, ref, config):
                found = None if refresh else store.look_up(ref, identity.made_from)
                if found is None:
                    with suppress(PublishedMeanwhileError), self._draft(store, identity) as draft:
                        draft.from_scratch = refresh and _is_first_try()
                        check_room(self.stage, needs_of(self.stage, opened), draft.folder)
                        with GpuWatch() as gpus:
                            self.work(config, opened, draft)
                        draft.gpu_seconds, draft.peak_gpu_memory = gpus.gpu_seconds, gpus.peak
                        store.publish(draft, replace=refresh)
            move_tag(store, "latest", ref)
            self._show(found or store.open(ref), opened, made=found is None)
        return Completed(name="Cached", message=f"{ref} is in the store", data=ref) if found else ref

    def _draft(self, store: ArtifactStore, identity: StageIdentity) -> AbstractContextManager[Draft]:
        return store.draft(identity.ref, identity.settings, identity.made_from, resume=self.resumes)

    def _show(self, artifact: Artifact, inputs: Inputs, *, made: bool) -> None:
        """Log the metrics and display them in Prefect's UI; an unreachable UI does not fail a published stage."""
        if made:
            logger.info("%s is published: %s", artifact.ref, artifact.manifest.metrics)
            table = [{"metric": name, "value": value} for name, value in artifact.manifest.metrics.items()]
            with warn_of_prefect("the metrics"):
                create_table_artifact(key=f"{self.stage}-metrics", table=table, description=f"`{artifact.ref.uri}`")
        if self.show:
            with warn_of_prefect(f"what {self.stage} shows"):
                self.show(artifact, inputs)


def _is_first_try() -> bool:
    """Whether this is the task's first attempt; a retry continues with what the first attempt has made."""
    context = TaskRunContext.get()
    return context is None or context.task_run.run_count <= 1


def _alone(store: ArtifactStore, ref: ArtifactRef, config: RunConfig) -> AbstractContextManager[None]:
    """Exclude other runs that compute the same artifact, but not machines that compute it together."""
    return nullcontext() if is_shared_out(ref.stage, config) else only_one(store.storage, ref)
