"""Checkpoints of a separation: the vectors in a safetensors file, and a JSON file with its name and the metrics."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from gif_core.runtime import ShardedRows, create_matrix, map_matrix

if TYPE_CHECKING:
    from gif_core.separation.descent import SeparationStep

STATE: Final = "state.json"
NAME: Final = "code_vectors"


class Checkpoints:
    """The latest state of a run, in a folder that all its processes share; older states are deleted."""

    def __init__(self, folder: Path, *, seconds: float = 60.0) -> None:
        """Write a state whenever the last one is older than `seconds`."""
        self.folder, self.seconds, self.last = folder, seconds, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, rows: ShardedRows) -> list[dict[str, Any]]:
        """Restore the rows and return the metrics of the finished epochs; an empty list if there is no state."""
        try:
            state = json.loads((self.folder / STATE).read_text())
        except FileNotFoundError:
            return []
        stored = map_matrix(self.folder / state["file"], NAME)[rows.first : rows.first + len(rows.local)]
        rows.local.copy_(torch.from_numpy(stored))
        steps: list[dict[str, Any]] = state["steps"]
        return steps

    def save_if_due(self, rows: ShardedRows, steps: Sequence["SeparationStep"]) -> None:
        """Write the state after the last of these steps; it becomes valid when the JSON file replaces the old one."""
        if not rows.agree(time.monotonic() - self.last >= self.seconds):
            return
        name = f"epoch-{steps[-1].epoch:06d}.safetensors"
        self._write_rows(rows, self.folder / name)
        if rows.leads:
            _replace(self.folder / STATE, json.dumps({"file": name, "steps": [asdict(step) for step in steps]}))
            for old in self.folder.glob("epoch-*.safetensors"):
                if old.name != name:
                    old.unlink()
        self.last = time.monotonic()

    def _write_rows(self, rows: ShardedRows, path: Path) -> None:
        """Write one file to which every process contributes its own range."""
        if rows.leads:
            create_matrix(path, NAME, rows.total, rows.local.shape[1])
        rows.wait()
        write_rows(rows, path, NAME)


def write_rows(rows: ShardedRows, path: Path, name: str) -> None:
    """Write this process's rows into an existing matrix file; returns when all processes have done so."""
    matrix = map_matrix(path, name, writable=True)
    matrix[rows.first : rows.first + len(rows.local)] = rows.local.cpu().numpy()
    matrix.flush()
    rows.wait()


def _replace(path: Path, text: str) -> None:
    """Write a file atomically."""
    temporary = path.with_name(f".{path.name}")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
