"""What all stages share: find the artifact or make it, and let Prefect show which of the two it was."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from prefect import Task, task
from prefect.artifacts import create_table_artifact
from prefect.context import TaskRunContext
from prefect.states import Completed

from gif_core.artifacts import (
    Artifact,
    ArtifactStore,
    Draft,
    PublishedMeanwhileError,
    artifact_key,
    condemning,
    move_tag,
    only_one,
)
from gif_core.planning import check_room, needs_of, stage_settings
from gif_core.reporting import Scored
from gif_core.runtime import lines_about, say_about
from schemas.artifacts import ArtifactRef, MadeFrom
from schemas.run import RunConfig
from schemas.stages import StageName
from tasks.progress import warn_of_prefect
from tasks.results import result_key
from tasks.retries import try_again

logger = logging.getLogger(__name__)

Inputs = Mapping[StageName, Artifact]
Work = Callable[[RunConfig, Inputs, Draft], None]
Show = Callable[[Artifact, Inputs], None]
StageTask = Task[[RunConfig, dict[StageName, ArtifactRef], bool], Any]


def stage_task(stage: StageName, *, resumes: bool = False, show: Show | None = None) -> Callable[[Work], StageTask]:
    """Turn a function that fills a draft into a task that returns an `ArtifactRef`.

    A stage that `resumes` gets the folder of an attempt that died or failed, with what it had finished. `show` tells
    Prefect's UI of the artifact, whether it was made or reused.

    The artifact store is the one cache: all machines share it and it knows what is really there. So the task
    asks the store rather than Prefect's result cache, and a reused stage ends in the state Cached.
    """

    def decorate(work: Work) -> StageTask:
        @task(
            name=stage,
            description=work.__doc__,
            cache_key_fn=result_key,
            refresh_cache=True,
            persist_result=True,
            result_serializer="json",
            retry_condition_fn=try_again,
        )
        def run(config: RunConfig, inputs: dict[StageName, ArtifactRef], refresh: bool = False) -> Any:
            store = ArtifactStore(config.store)
            opened = {name: store.open(ref) for name, ref in inputs.items()}
            with lines_about(stage=stage), condemning(store):
                ref, made = _find_or_make(store, stage, work, config, opened, refresh=refresh, resumes=resumes)
            if show:
                with warn_of_prefect(f"what {stage} shows"):
                    show(store.open(ref), opened)
            return ref if made else Completed(name="Cached", message=f"{ref} is in the store", data=ref)

        return run

    return decorate


def identify(
    store: ArtifactStore, stage: StageName, config: RunConfig, inputs: Inputs
) -> tuple[ArtifactRef, dict[str, Any], dict[StageName, MadeFrom]]:
    """The artifact that these settings make of these inputs, be it there or not, and what its key is made of."""
    made_from = {name: artifact.made_from for name, artifact in inputs.items()}
    settings = stage_settings(store, config, stage, _scored(inputs))
    keys = {name: source.key for name, source in made_from.items()}
    return store.ref(stage, artifact_key(stage, settings, keys)), settings, made_from


def _find_or_make(
    store: ArtifactStore,
    stage: StageName,
    work: Work,
    config: RunConfig,
    inputs: Inputs,
    *,
    refresh: bool,
    resumes: bool,
) -> tuple[ArtifactRef, bool]:
    """The artifact, and whether it was made now."""
    ref, settings, made_from = identify(store, stage, config, inputs)
    say_about(artifact=str(ref))
    if not refresh and store.find(stage, ref.key, made_from):
        move_tag(store, "latest", ref)
        return ref, False
    with _alone(store, ref, config):
        if not refresh and store.find(stage, ref.key, made_from):
            move_tag(store, "latest", ref)
            return ref, False
        with (
            suppress(PublishedMeanwhileError),
            store.draft(ref, settings, made_from, resume=resumes) as draft,
        ):
            draft.from_scratch = refresh and _is_first_try()
            check_room(stage, needs_of(stage, inputs), draft.folder)
            work(config, inputs, draft)
            store.publish(draft, replace=refresh)
    move_tag(store, "latest", ref)
    _show_metrics(store.open(ref))
    return ref, True


def _is_first_try() -> bool:
    """Whether Prefect has not tried this task before: a second try goes on with what the first has made."""
    context = TaskRunContext.get()
    return context is None or context.task_run.run_count <= 1


def _alone(store: ArtifactStore, ref: ArtifactRef, config: RunConfig) -> AbstractContextManager[None]:
    """While no other run makes the same; machines that train one model together do it at the same time."""
    together = ref.stage == "training" and config.execution.nodes != "1"
    return nullcontext() if together else only_one(store.storage, ref)


def _scored(inputs: Inputs) -> Scored | None:
    """The evaluation that a stage reads, if it does."""
    if "evaluation" not in inputs:
        return None
    evaluation, ingestion = inputs["evaluation"], inputs["ingestion"]
    return Scored(evaluation.ref.key, ingestion.ref.key, evaluation.manifest.settings)


def _show_metrics(artifact: Artifact) -> None:
    """Tell the log and Prefect's UI; a stage that is published does not fail because the UI is away."""
    metrics = artifact.manifest.metrics
    logger.info("%s is published: %s", artifact.ref, metrics)
    table = [{"metric": name, "value": value} for name, value in metrics.items()]
    with warn_of_prefect("the metrics"):
        create_table_artifact(key=f"{artifact.ref.stage}-metrics", table=table, description=f"`{artifact.ref.uri}`")
