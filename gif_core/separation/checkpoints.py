"""Checkpoints of a separation in the store: the rows of every process in files, and the metrics of the epochs."""

# Shapes: M rows of this process, D dimensions.

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors import safe_open
from torch import Tensor

from gif_core.artifacts import Checkpoint, Checkpoints, newest_of_all
from gif_core.runtime import ProcessGroup, ShardedRows, map_matrix
from schemas.artifacts import StoredFile

if TYPE_CHECKING:
    from gif_core.separation.descent import SeparationStep

logger = logging.getLogger(__name__)
NAME: Final = "code_vectors"
STEPS: Final = "steps"
FIRST_ROW: Final = "first_row"
FILE_BYTES = 2**28
"""Most bytes of rows in one file: rows that are streamed from a mapped file need no more memory than this."""


class RowCheckpoints:
    """The state of a run after an epoch, which any number of processes continue; all processes call its methods."""

    def __init__(self, checkpoints: Checkpoints, group: ProcessGroup, *, seconds: float = 60.0) -> None:
        """Write a state whenever the last one is older than `seconds`."""
        self.checkpoints, self.group = checkpoints, group
        self.seconds, self.saved_at = seconds, time.monotonic()

    def load(self, rows: ShardedRows) -> list[dict[str, Any]]:
        """Restore the rows and return the metrics of the finished epochs; an empty list if there is no state."""
        found = newest_of_all(self.checkpoints, self.group)
        if found is None:
            return []
        read_rows(found, rows.local, rows.first)
        if self.group.leads:
            logger.info("separation goes on after epoch %d, from %s", found.state.step, found.folder)
        steps: list[dict[str, Any]] = found.state.values[STEPS]
        return steps

    def save_if_due(self, rows: ShardedRows, steps: Sequence["SeparationStep"]) -> None:
        """Write the state after the last of these steps, by the clock of the first process."""
        if rows.agree(time.monotonic() - self.saved_at >= self.seconds):
            self.save(rows, steps)

    def save(self, rows: ShardedRows, steps: Sequence["SeparationStep"]) -> None:
        """Write the state after the last of these steps; it counts when all processes have written their rows."""
        step = steps[-1].epoch
        (folder, *_) = self.group.gather(self.checkpoints.new_folder(step) if self.group.leads else None)
        shares = self.group.gather([file.model_dump() for file in self._write_rows(folder, rows)])
        if self.group.leads:
            files = [StoredFile.model_validate(file) for share in shares for file in share]
            self.checkpoints.commit(folder, step, files, {STEPS: [asdict(each) for each in steps]})
        rows.wait()
        self.saved_at = time.monotonic()

    def _write_rows(self, folder: str, rows: ShardedRows) -> list[StoredFile]:
        height = max(1, FILE_BYTES // (rows.local.shape[1] * rows.local.element_size()))
        return [
            self.checkpoints.write(
                folder,
                f"rows-{rows.first + begin:012d}.safetensors",
                {NAME: rows.local[begin : begin + height]},
                {FIRST_ROW: str(rows.first + begin)},
            )
            for begin in range(0, len(rows.local), height)
        ]


def read_rows(checkpoint: Checkpoint, local_MD: Tensor, first: int) -> None:
    """Fill `local_MD` with the rows from `first` on, whichever processes wrote them."""
    for name in checkpoint.names("rows-"):
        with safe_open(checkpoint.path(name), framework="pt") as file:
            stored, start = file.get_slice(NAME), int(file.metadata()[FIRST_ROW])
            begin, end = max(first, start), min(first + len(local_MD), start + stored.get_shape()[0])
            if begin < end:
                local_MD[begin - first : end - first] = stored[begin - start : end - start].to(local_MD.device)


def write_rows(rows: ShardedRows, path: Path, name: str) -> None:
    """Write this process's rows into an existing matrix file; returns when all processes have done so."""
    matrix = map_matrix(path, name, writable=True)
    matrix[rows.first : rows.first + len(rows.local)] = rows.local.cpu().numpy()
    matrix.flush()
    rows.wait()


def collect_rows(checkpoint: Checkpoint, path: Path) -> list[dict[str, Any]]:
    """Write the rows of all processes into an existing matrix file; the metrics of the epochs that made them."""
    matrix = map_matrix(path, NAME, writable=True)
    read_rows(checkpoint, torch.from_numpy(matrix), 0)
    matrix.flush()
    steps: list[dict[str, Any]] = checkpoint.state.values[STEPS]
    return steps
