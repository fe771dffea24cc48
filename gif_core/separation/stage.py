"""The stage separation: identity vectors → `code_vectors.safetensors`, the curve of the descent, and distances."""

from collections.abc import Generator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from gif_core.artifacts import (
    Draft,
    Inputs,
    PublishedMeanwhileError,
    checkpoint_folder,
    is_shared_out,
    yield_to_first_publisher,
)
from gif_core.runtime import Progress, count_processes, create_matrix, map_matrix, pick_device, rendezvous_options
from gif_core.separation.checkpoints import NAME, collect_rows
from gif_core.separation.descent import SeparationStep
from gif_core.separation.distances import SCORED_ROWS, bin_edges, measure_distances
from gif_core.separation.neighbourhoods import sample
from gif_core.separation.starting_vectors import copy_vectors, keep_known_vectors
from gif_core.separation.worker import VECTORS, WORKER, open_checkpoints
from schemas.files import CODE_VECTORS_FILE, CURVE_FILE, DISTANCES_FILE, VECTORS_FILE
from schemas.run import RunConfig
from schemas.separation import SeparationJob

CURVE: Final = pa.schema(
    [("epoch", pa.int64())]
    + [(name, pa.float64()) for name in ("loss", "gap", "mean_cosine", "neighbours_kept", "spearman")]
)


def run(config: RunConfig, inputs: Inputs, draft: Draft) -> Generator[Progress, None, None]:
    """Move identity vectors apart until they are uniform on the sphere (Eq. 4 to 6)."""
    job = _prepare(config, inputs["embedding"].path(VECTORS_FILE), draft)
    if draft.from_scratch:
        open_checkpoints(job).remove()
    with yield_to_first_publisher(config, draft):
        curve = yield from _descend(job, config, draft)
    _write_curve(curve, draft)
    _write_distances(job, config, draft)
    draft.spent.append(job.checkpoints)


def _descend(job: SeparationJob, config: RunConfig, draft: Draft) -> Generator[Progress, None, list[SeparationStep]]:
    """Fill the result file, here or with other processes and machines; the metrics of every epoch."""
    processes = min(count_processes(config.execution), len(map_matrix(Path(job.vectors), VECTORS)))
    options = rendezvous_options(config.execution, draft.ref.key[:12])
    yield Progress("separation", 0, None)
    curve: list[SeparationStep] = []
    for step in WORKER.run_anywhere(job, draft.work, processes=processes, options=options):
        if step.epoch == 0:  # also when processes have started again
            curve.clear()
        curve.append(step)
        yield Progress("separation", step.epoch, step.epochs, f"gap {step.gap:.4f}")
    return _collect(job) if job.together else curve


def _collect(job: SeparationJob) -> list[SeparationStep]:
    """Fill the result file from the last checkpoint, to which all machines have contributed."""
    result = open_checkpoints(job).newest()
    if result is None:
        raise PublishedMeanwhileError("the checkpoints are gone: another of the machines was first to publish")
    return [SeparationStep(**metrics) for metrics in collect_rows(result, Path(job.result))]


def _prepare(config: RunConfig, vectors: Path, draft: Draft) -> SeparationJob:
    """The files of the job on this machine, in a hidden folder."""
    work = draft.work
    work.mkdir(exist_ok=True)
    start, result = work / "start.safetensors", draft.folder / CODE_VECTORS_FILE
    rows, columns = copy_vectors(vectors, start, config.separation.dimension)
    fixed = keep_known_vectors(config, start) if config.separation.extends else 0
    draft.metrics |= {"kept_vectors": fixed} if fixed else {}
    create_matrix(result, NAME, rows, columns)
    return SeparationJob(
        config=config.separation,
        seed=config.seed,
        device=config.execution.device,
        process_timeout=config.execution.process_timeout,
        lost_after=config.execution.lost_after,
        vectors=str(start),
        result=str(result),
        store=config.store,
        checkpoints=checkpoint_folder("separation", draft.ref, draft.inputs),
        checkpoint_seconds=config.execution.checkpoint_seconds,
        together=is_shared_out("separation", config),
        fixed=fixed,
    )


def _write_curve(curve: list[SeparationStep], draft: Draft) -> None:
    rows = [{name: getattr(step, name) for name in CURVE.names} for step in curve]
    pq.write_table(pa.Table.from_pylist(rows, schema=CURVE), draft.folder / CURVE_FILE)
    last = curve[-1]
    draft.metrics |= {"epochs": last.epoch, "gap": last.gap}
    draft.metrics |= {"neighbours_kept": last.neighbours_kept or 0.0, "spearman": last.spearman or 0.0}


def _write_distances(job: SeparationJob, config: RunConfig, draft: Draft) -> None:
    """How far apart the vectors were and are: scores and histograms."""
    before, after = map_matrix(Path(job.vectors), VECTORS), map_matrix(Path(job.result), NAME)
    rows_B = sample(len(after), SCORED_ROWS, [config.seed, len(after)]).numpy()
    device = pick_device(config.execution.device)
    chosen = [torch.from_numpy(matrix[rows_B]).to(device) for matrix in (before, after)]
    measured = [measure_distances(vectors) for vectors in chosen] if len(rows_B) > 1 else []
    counts = [count for _, count in measured] or [np.zeros(len(bin_edges()), np.int64)] * 2
    table = {"distance": bin_edges(), "before": counts[0], "after": counts[1]}
    pq.write_table(pa.table(table), draft.folder / DISTANCES_FILE)
    draft.metrics["scored_vectors"] = len(rows_B)
    for (score, _), ending in zip(measured, ("_before", ""), strict=False):
        draft.metrics |= {f"{name}_distance{ending}": getattr(score, name) for name in ("min", "mean", "max")}
