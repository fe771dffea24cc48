"""The stage training: faces, codes and code vectors → backbone, head, and the metrics of all steps."""

from collections.abc import Generator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from gif_core.artifacts import Draft, Inputs, MetricsWriter, PublishedMeanwhileError, yield_to_first_publisher
from gif_core.runtime import Progress, check_elastic, count_processes, rendezvous_options
from gif_core.separation import open_code_vectors
from gif_core.tokenization import check_identities, read_shape
from gif_core.training.headlines import describe_report, mean_metrics
from gif_core.training.job import describe_job
from gif_core.training.loggers import TrainingLogs
from gif_core.training.model import save_model
from gif_core.training.trainer import TrainingReport
from gif_core.training.worker import WORKER, open_checkpoints
from schemas.errors import GifError
from schemas.files import CODES_DUCKDB_FILE, CODES_FILE, IDENTITIES_FILE, METRICS_FILE
from schemas.run import RunConfig
from schemas.training import TrainingJob


def run(
    config: RunConfig, inputs: Inputs, draft: Draft, slot: AbstractContextManager[None] | None = None
) -> Generator[Progress, None, None]:
    """Train a backbone to predict the code of a face and to meet its code vector (Eq. 10).

    `slot` is held while it trains: it may wait for a turn.
    """
    check_identities(inputs["tokenization"].path(CODES_FILE), inputs["ingestion"].path(IDENTITIES_FILE))
    job = describe_job(config, inputs, draft)
    if draft.from_scratch:
        open_checkpoints(job).remove()
    with yield_to_first_publisher(config, draft):
        with slot or nullcontext():
            yield from _train(job, config, draft)
        _keep_model(job, config, inputs, draft)
    if job.start:
        draft.metrics["started_from"] = "backbone and head" if job.start.head else "backbone"
    draft.spent.append(job.checkpoints)


def _train(job: TrainingJob, config: RunConfig, draft: Draft) -> Generator[Progress, None, None]:
    yield Progress("training", 0, None)
    with _open_logs(config, draft) as logs, closing(_run(job, config, draft)) as reports:
        for report in reports:
            text = describe_report(report)
            yield Progress("training", report.step, report.steps, text, _milestone(report, job.config.epochs))
            logs.add(report)


def _milestone(report: TrainingReport, epochs: int) -> str:
    """The epoch that ends with a report."""
    ends = report.step * epochs == (report.epoch + 1) * report.steps
    return f"epoch {report.epoch + 1} of {epochs}" if ends else ""


def _run(job: TrainingJob, config: RunConfig, draft: Draft) -> Generator[TrainingReport, None, None]:
    """Here, or in several processes under torchrun."""
    execution = config.execution
    processes = count_processes(execution)
    check_elastic(job.config.batch_size, execution, processes)
    options = rendezvous_options(execution, draft.ref.key[:12])
    return WORKER.run_anywhere(job, draft.work, processes=processes, options=options)


def _open_logs(config: RunConfig, draft: Draft) -> TrainingLogs:
    given, name = config.execution.tensorboard, draft.ref.key[:12]
    events = given / name if given else draft.folder / "tensorboard"
    return TrainingLogs(events, wandb=config.execution.wandb, name=name)


def _keep_model(job: TrainingJob, config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """The model and its metrics, from the last checkpoint."""
    result = open_checkpoints(job).newest()
    if result is None and config.execution.nodes != "1":
        raise PublishedMeanwhileError("the checkpoints are gone: another of the machines was first to publish")
    if result is None or result.state.step < result.state.values["steps"]:
        raise GifError("training ended before its last step; run it again and it goes on from its last checkpoint")
    reports = [TrainingReport(**report) for report in result.state.values["reports"]]
    with MetricsWriter(draft.folder / METRICS_FILE, "training") as table:
        for report in reports:
            table.add(report.step, report.metrics)
    save_model(draft.folder, result, _describe_model(config, inputs))
    draft.metrics |= {"steps": result.state.step, **mean_metrics(reports)}


def _describe_model(config: RunConfig, inputs: Inputs) -> dict[str, Any]:
    shape = read_shape(inputs["tokenization"].path(CODES_DUCKDB_FILE))
    return {
        "backbone": config.training.backbone,
        "embedding_dim": open_code_vectors(inputs["separation"]).shape[1],
        "head": config.training.head,
        "network": "average" if config.training.head == "dcq" else "trained",
        "length": shape.length,
        "vocab_size": shape.vocab_size,
        "codes": inputs["tokenization"].ref.key,
        "settings": config.training.model_dump(mode="json"),
    }
