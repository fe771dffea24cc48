"""Training as a cached task that carries on from its last checkpoint, on this machine or on another."""

import math
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import numpy as np

from gif_core.artifacts import (
    Artifact,
    ArtifactStore,
    Draft,
    MetricsWriter,
    PublishedMeanwhileError,
    StoreError,
    checkpoint_folder,
)
from gif_core.runtime import ProcessGroup, pick_device
from gif_core.separation import open_code_vectors
from gif_core.tokenization import DUCKDB_FILE, PARQUET_FILE, check_identities, read_codes, read_shape
from gif_core.training import BACKBONE, HEAD, TrainingLogs, TrainingReport, open_checkpoints, run_job, save_model
from schemas.errors import GifError
from schemas.evaluation import PairFiles
from schemas.run import RunConfig
from schemas.training import TrainingJob, TrainingStart
from tasks.limits import training_slot
from tasks.progress import track
from tasks.stage import Inputs, stage_task
from tasks.torchrun import check_elastic, count_processes, rendezvous_options, run_module

WORK: Final = ".work"
SHOWN: Final = {
    "loss": ("loss", ".3f"),
    "token_accuracy": ("tokens", ".0%"),
    "code_accuracy": ("code", ".0%"),
    "accuracy": ("right", ".0%"),
    "alignment": ("z·h", ".2f"),
    "val_accuracy": ("unseen", ".1%"),
    "images_per_second": ("img/s", ".0f"),
}
"""Headline metrics of a training, those of them that its head has: how they are called and written. Of metrics that
are counted, such as `token_accuracy/1`, all are shown."""


@stage_task("training")
def training(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """A backbone learns to predict the code of a face and to meet its code vector (Eq. 10)."""
    check_identities(inputs["tokenization"].path("codes.parquet"), inputs["ingestion"].path("identities.parquet"))
    job = _describe_job(config, inputs, draft)
    if draft.from_scratch:
        open_checkpoints(job).remove()
    with _giving_way(config, draft):
        _train(job, config, draft)
        _keep_model(job, config, inputs, draft)
    if job.start:
        draft.metrics["started_from"] = "backbone and head" if job.start.head else "backbone"
    draft.spent.append(job.checkpoints)


@contextmanager
def _giving_way(config: RunConfig, draft: Draft) -> Iterator[None]:
    """PublishedMeanwhileError for what fails after another of the machines has published.

    It then removes the checkpoints, also under the hands of those that are still reading them.
    """
    if config.execution.nodes == "1":
        yield
        return
    store = ArtifactStore(config.store)
    before = store.look_up(draft.ref, draft.inputs)
    try:
        yield
    except (GifError, FileNotFoundError) as error:
        if store.look_up(draft.ref, draft.inputs) not in (None, before):
            raise PublishedMeanwhileError("another of the machines was first to publish") from error
        raise


def _train(job: TrainingJob, config: RunConfig, draft: Draft) -> None:
    with (
        training_slot(config.execution),
        _open_logs(config, draft) as logs,
        closing(_run(job, config, draft)) as reports,
    ):
        for report in track(reports, "training", lambda at: (at.step, at.steps), describe):
            logs.add(report)


def _keep_model(job: TrainingJob, config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """The model and its metrics, from the last checkpoint."""
    result = open_checkpoints(job).newest()
    if result is None and config.execution.nodes != "1":
        raise PublishedMeanwhileError("the checkpoints are gone: another of the machines was first to publish")
    if result is None or result.state.step < result.state.values["steps"]:
        raise GifError("training ended before its last step; run it again and it goes on from its last checkpoint")
    told = [TrainingReport(**report) for report in result.state.values["reports"]]
    with MetricsWriter(draft.folder / "metrics.parquet", "training") as table:
        for report in told:
            table.add(report.step, report.metrics)
    save_model(draft.folder, result, _describe_model(config, inputs))
    draft.metrics |= {"steps": result.state.step, **_means(told)}


def _run(job: TrainingJob, config: RunConfig, draft: Draft) -> Generator[TrainingReport, None, None]:
    """Here, or in several processes under torchrun."""
    processes = count_processes(config.execution)
    check_elastic(job.config.batch_size, config.execution, processes)
    if processes == 1 and config.execution.nodes == "1":
        return run_job(job, ProcessGroup(pick_device(job.device)))
    path = draft.folder / WORK / "job.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(job.model_dump_json())
    options = rendezvous_options(config.execution, draft.ref.key[:12])
    told = run_module("gif_core.training.worker", [str(path)], processes, options)
    return (TrainingReport(**metrics) for metrics in told)


def _describe_job(config: RunConfig, inputs: Inputs, draft: Draft) -> TrainingJob:
    """What the processes need to know; files that lie in object storage are fetched first."""
    faces, execution = inputs["ingestion"], config.execution
    return TrainingJob(
        config=config.training,
        seed=config.seed,
        device=execution.device,
        workers=max(1, execution.workers // count_processes(execution)),
        shards=_paths(faces, "identities-"),
        held_out=_paths(faces, "held_out-"),
        val_sets=tuple(each for each in config.evaluation.sets if isinstance(each, PairFiles)),
        codes=str(inputs["tokenization"].path("codes.duckdb")),
        code_vectors=str(inputs["separation"].path("code_vectors.safetensors")),
        store=config.store,
        checkpoints=checkpoint_folder("training", draft.ref, draft.inputs),
        checkpoint_seconds=execution.checkpoint_seconds,
        checkpoint_steps=execution.checkpoint_steps,
        checkpoints_kept=execution.checkpoints_kept,
        compile=execution.compile,
        gradient_checkpointing=execution.gradient_checkpointing,
        start=_find_start(config, inputs) if config.training.start_from else None,
    )


def _find_start(config: RunConfig, inputs: Inputs) -> TrainingStart:
    """The weights of an earlier model; its head only if it is about the same codes or the same identities."""
    store = ArtifactStore(config.store)
    assert config.training.start_from is not None
    model = store.open(store.ref("training", config.training.start_from))
    same_head = model.manifest.settings.get("head") == config.training.head
    head = model.path(HEAD) if same_head and _is_continued(store, config, model, inputs) else None
    return TrainingStart(backbone=str(model.path(BACKBONE)), head=str(head) if head else None)


def _is_continued(store: ArtifactStore, config: RunConfig, model: Artifact, inputs: Inputs) -> bool:
    """Whether the codes that the model learned are the first of these; heads without codes only ask for the identities.

    No when its codes are no longer in the store.
    """
    try:
        before = store.open(store.ref("tokenization", model.manifest.inputs["tokenization"].key))
        check_identities(before.path(PARQUET_FILE), inputs["ingestion"].path("identities.parquet"), more=True)
    except StoreError:
        raise
    except GifError:
        return False
    if config.training.head != "gif":
        return True
    (old_NL, old_shape), (new_NL, new_shape) = (
        read_codes(table.path(DUCKDB_FILE)) for table in (before, inputs["tokenization"])
    )
    return old_shape == new_shape and np.array_equal(old_NL, new_NL[: len(old_NL)])


def _paths(artifact: Artifact, prefix: str) -> tuple[str, ...]:
    return tuple(map(str, artifact.paths(prefix)))


def _open_logs(config: RunConfig, draft: Draft) -> TrainingLogs:
    given, name = config.execution.tensorboard, draft.ref.key[:12]
    events = given / name if given else draft.folder / "tensorboard"
    return TrainingLogs(events, wandb=config.execution.wandb, name=name)


def _describe_model(config: RunConfig, inputs: Inputs) -> dict[str, Any]:
    shape = read_shape(inputs["tokenization"].path("codes.duckdb"))
    return {
        "backbone": config.training.backbone,
        "embedding_dim": open_code_vectors(inputs["separation"]).shape[1],
        "head": config.training.head,
        "length": shape.length,
        "vocab_size": shape.vocab_size,
        "codes": inputs["tokenization"].ref.key,
        "settings": config.training.model_dump(mode="json"),
    }


def describe(report: TrainingReport) -> str:
    """The headline metrics in a line: `loss 2.113  tokens 91 84 62%  code 55%  z·h 0.71`."""
    said = []
    for key, (name, how) in SHOWN.items():
        values = [f"{report.metrics[found]:{how}}" for found in report.metrics if found.partition("/")[0] == key]
        said += [f"{name} {' '.join(values).replace('% ', ' ')}"] if values else []
    return "  ".join(said)


def _means(reports: list[TrainingReport]) -> dict[str, float]:
    """Mean of the headline metrics over the last twentieth of the reports, without those of skipped steps."""
    tail = reports[-max(len(reports) // 20, 1) :]
    found = {name: [report.metrics.get(name, math.nan) for report in tail] for name in SHOWN}
    finite = {name: [value for value in values if math.isfinite(value)] for name, values in found.items()}
    return {name: sum(values) / len(values) for name, values in finite.items() if values}
