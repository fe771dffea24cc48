"""Runs a separation from file to file: in the calling process, or as one of several under torchrun.

python -m torch.distributed.run --nproc-per-node 2 -m gif_core.separation.worker job.json
"""

# Shapes: M rows of a chunk, D dimensions.

import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from gif_core.artifacts import ArtifactStore, Checkpoints, StoreAwayError, check_shared
from gif_core.runtime import (
    CHUNK,
    JobWorker,
    Matrix,
    ProcessGroup,
    ShardedRows,
    map_matrix,
    own_range,
    pick_device,
    unit_rows,
)
from gif_core.separation.checkpoints import NAME, RowCheckpoints, write_rows
from gif_core.separation.descent import SeparationStep, separate
from schemas.separation import SeparationJob

VECTORS: Final = "vectors"


def run_job(job: SeparationJob, group: ProcessGroup | None = None) -> Generator[SeparationStep, None, None]:
    """Separate this process's range of the vectors, then write it to the result file, or to the last checkpoint."""
    group = group or ProcessGroup(pick_device(job.device))
    checkpoints = open_checkpoints(job)
    if job.together:
        check_shared(checkpoints, group)
    rows = open_rows(job, group.rank, group.size)
    saved, steps = RowCheckpoints(checkpoints, group, seconds=job.checkpoint_seconds), []
    for step in separate(rows, job.config, seed=job.seed, fixed=job.fixed, checkpoints=saved):
        steps.append(step)
        yield step
    saved.save(rows, steps) if job.together else write_rows(rows, Path(job.result), NAME)


def open_checkpoints(job: SeparationJob) -> Checkpoints:
    """Where the job keeps its state: one, and while the next is written both."""
    return Checkpoints(ArtifactStore(job.store), job.checkpoints, keep=1)


def open_rows(job: SeparationJob, rank: int, processes: int) -> ShardedRows:
    """Load unit rows onto the device if they fit; otherwise into the mapped result file, streamed to the device."""
    device = _own_device(job.device)
    start = map_matrix(Path(job.vectors), VECTORS)
    first, end = own_range(len(start), rank, processes)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    if fits((end - first) * start.shape[1] * 4 * here, device):
        local = torch.empty((end - first, start.shape[1]), device=device)
    else:
        local = torch.from_numpy(map_matrix(Path(job.result), NAME, writable=True)[first:end])
    rows = ShardedRows(local, first=first, total=len(start), device=device)
    _copy_from_first(start, rows) if job.together else _copy_unit(start, local, first)
    return rows


def fits(size: int, device: torch.device) -> bool:
    """Whether `size` bytes leave enough memory on the device for the computation."""
    if device.type == "cuda":
        return size < 0.8 * torch.cuda.mem_get_info(device)[0]
    return size < 0.5 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _own_device(name: str) -> torch.device:
    """Return this process's own device; on GPUs matrix products run in TF32 with float32 accumulation."""
    device = pick_device(name)
    if device.type != "cuda":
        return device
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def _copy_unit(start: Matrix, local: Tensor, first: int) -> None:
    for begin in range(0, len(local), CHUNK):
        chunk_MD = torch.from_numpy(start[first + begin : first + begin + min(CHUNK, len(local) - begin)])
        local[begin : begin + len(chunk_MD)] = unit_rows(chunk_MD, first + begin).to(local.device)


def _copy_from_first(start: Matrix, rows: ShardedRows) -> None:
    """Give all processes the vectors of the first one: another kind of machine rounds a projection differently."""
    for begin in range(0, rows.total, CHUNK):
        places_M = torch.arange(begin, min(begin + CHUNK, rows.total))
        chunk_MD = unit_rows(torch.from_numpy(start[begin : begin + CHUNK]), begin).to(rows.device)
        rows.put(places_M, rows.add(chunk_MD if rows.leads else torch.zeros_like(chunk_MD)))


WORKER: Final = JobWorker(
    module="gif_core.separation.worker",
    job_type=SeparationJob,
    step_type=SeparationStep,
    run=lambda job, group, _: run_job(job, group),
    passing=(StoreAwayError,),
)

if __name__ == "__main__":
    WORKER.main()
