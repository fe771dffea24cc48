"""Separation as a cached task that carries on where a killed run was."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from gif_core.artifacts import ArtifactStore, Draft
from gif_core.embedding import vectors_of
from gif_core.runtime import create_matrix, map_matrix, pick_device
from gif_core.separation import (
    CHUNK,
    NAME,
    VECTORS,
    SeparationStep,
    bin_edges,
    fit_map,
    leading_directions,
    measure_distances,
    open_code_vectors,
    place,
    project,
    run_job,
    sample,
)
from schemas.errors import GifError
from schemas.run import RunConfig
from schemas.separation import SeparationJob
from tasks.progress import track
from tasks.stage import Inputs, stage_task
from tasks.torchrun import count_processes, run_module

WORK: Final = ".work"
SCORED_ROWS: Final = 32_768
"""Distances are those of all pairs up to so many vectors, and of a fixed sample of so many beyond."""
CURVE: Final = pa.schema(
    [("epoch", pa.int64())]
    + [(name, pa.float64()) for name in ("loss", "gap", "mean_cosine", "neighbours_kept", "spearman")]
)


@stage_task("separation", resumes=True)
def separation(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Identity vectors move apart until they are uniform on the sphere (Eq. 4 to 6)."""
    job = _prepare(config, inputs["embedding"].path("vectors.parquet"), draft)
    steps = _run(job, config, draft.folder / WORK)
    shown = track(steps, "separation", lambda step: (step.epoch, step.epochs), lambda step: f"gap {step.gap:.4f}")
    curve = list(shown)
    rows = [{name: getattr(step, name) for name in CURVE.names} for step in curve]
    pq.write_table(pa.Table.from_pylist(rows, schema=CURVE), draft.folder / "curve.parquet")
    last = curve[-1]
    draft.metrics |= {"epochs": last.epoch, "gap": last.gap}
    draft.metrics |= {"neighbours_kept": last.neighbours_kept or 0.0, "spearman": last.spearman or 0.0}
    _write_distances(job, config, draft)


def _prepare(config: RunConfig, vectors: Path, draft: Draft) -> SeparationJob:
    """The files of the job, in a hidden folder that a later attempt finds again."""
    work = draft.folder / WORK
    if draft.from_scratch:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(exist_ok=True)
    rows, columns = _copy_vectors(vectors, work / "start.safetensors", config.separation.dimension)
    fixed = _keep_known(config, work / "start.safetensors") if config.separation.extends else 0
    draft.metrics |= {"kept_vectors": fixed} if fixed else {}
    create_matrix(draft.folder / "code_vectors.safetensors", NAME, rows, columns)
    return SeparationJob(
        config=config.separation,
        seed=config.seed,
        device=config.execution.device,
        vectors=str(work / "start.safetensors"),
        result=str(draft.folder / "code_vectors.safetensors"),
        checkpoints=str(work / "checkpoints"),
        fixed=fixed,
    )


def _keep_known(config: RunConfig, start: Path) -> int:
    """Start from the known code vectors, with new identities placed among them; the number of known ones."""
    store = ArtifactStore(config.store)
    assert config.separation.extends is not None
    known_ND = open_code_vectors(store.open(store.ref("separation", config.separation.extends)))
    all_rows = map_matrix(start, VECTORS, writable=True)
    kept, columns = len(known_ND), known_ND.shape[1]
    if kept > len(all_rows) or columns != all_rows.shape[1]:
        raise GifError(
            f"separation.extends names {kept:,} code vectors of {columns} dimensions, which do not fit "
            f"{len(all_rows):,} vectors of {all_rows.shape[1]}: separate all identities anew, without it"
        )
    all_rows[kept:] = place(all_rows[kept:], fit_map(all_rows[:kept], known_ND))
    for begin in range(0, kept, CHUNK):
        all_rows[begin : min(begin + CHUNK, kept)] = known_ND[begin : begin + CHUNK]
    all_rows.flush()
    return kept


def _copy_vectors(source: Path, target: Path, dimension: int | None) -> tuple[int, int]:
    """Bring the vectors into a file that can be mapped, some at a time, and into fewer dimensions if that is wanted."""
    table = pq.ParquetFile(source)
    rows, given = table.metadata.num_rows, table.schema_arrow.field("vector").type.list_size
    columns = dimension or given
    if columns > given:
        raise GifError(
            f"separation.dimension={columns} is more than the {given} dimensions of the encoder's vectors: "
            f"ask for {given} or fewer, or take an encoder with longer vectors (embedding.model)"
        )
    basis = leading_directions(_read_vectors(table), columns) if columns < given else None
    start = create_matrix(target, VECTORS, rows, columns)
    done = 0
    for part in _read_vectors(table):
        start[done : done + len(part)] = part if basis is None else project(part, basis)
        done += len(part)
    start.flush()
    return rows, columns


def _read_vectors(table: pq.ParquetFile) -> Iterator[NDArray[np.float32]]:
    return (vectors_of(pa.Table.from_batches([batch])) for batch in table.iter_batches(columns=["vector"]))


def _run(job: SeparationJob, config: RunConfig, work: Path) -> Iterator[SeparationStep]:
    """Here, or in several processes under torchrun."""
    processes = min(count_processes(config.execution), len(map_matrix(Path(job.vectors), VECTORS)))
    if processes == 1:
        return run_job(job)
    path = work / "job.json"
    path.write_text(job.model_dump_json())
    told = run_module("gif_core.separation.worker", [str(path)], processes)
    return (SeparationStep(**metrics) for metrics in told)


def _write_distances(job: SeparationJob, config: RunConfig, draft: Draft) -> None:
    """How far apart the vectors were and are: scores and histograms."""
    before, after = map_matrix(Path(job.vectors), VECTORS), map_matrix(Path(job.result), NAME)
    rows_B = sample(len(after), SCORED_ROWS, [config.seed, len(after)]).numpy()
    device = pick_device(config.execution.device)
    chosen = [torch.from_numpy(matrix[rows_B]).to(device) for matrix in (before, after)]
    measured = [measure_distances(vectors) for vectors in chosen] if len(rows_B) > 1 else []
    counts = [count for _, count in measured] or [np.zeros(len(bin_edges()), np.int64)] * 2
    table = {"distance": bin_edges(), "before": counts[0], "after": counts[1]}
    pq.write_table(pa.table(table), draft.folder / "distances.parquet")
    draft.metrics["scored_vectors"] = len(rows_B)
    for (score, _), ending in zip(measured, ("_before", ""), strict=False):
        draft.metrics |= {f"{name}_distance{ending}": getattr(score, name) for name in ("min", "mean", "max")}
