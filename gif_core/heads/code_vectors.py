"""Code vectors during training: the rows of H that a step uses, which are constant or learn.

All rows are on the device if they fit (`hold`). Otherwise they stay in host memory or in a mapped file, and only those
of the batch's identities and of the drawn negatives travel to the device, on a GPU read a step ahead (`rows_ahead`).
`LivingVectors` writes them back after the step. Every process has the same rows in use and receives the same gradient
of them, so all of them hold the same H, and one process gives the same result as several.
"""

# Shapes: M identities, S rows in use, B images of this process, D dimensions.

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from gif_core.heads.rows_ahead import RowsAhead
from gif_core.runtime import runs_behind, to_device

BLOCK: Final = 65536
"""Rows that are copied to a device at a time."""
SMALLEST: Final = 1e-12
"""Lower bound of the norms that divide."""


class FrozenVectors(nn.Module):
    """Code vectors that stay what separation made them, as in the paper."""

    def __init__(self, vectors_MD: NDArray[np.floating[Any]]) -> None:
        """The vectors may be mapped from a file: only the rows in use are read."""
        super().__init__()
        self.vectors_MD = vectors_MD
        self.used_S: NDArray[np.int64] = np.empty(0, np.int64)
        self.ahead: RowsAhead | None = None
        self._read_SD = torch.empty(0, vectors_MD.shape[1])
        self._held_MD: Tensor | None = None

    def hold(self, device: torch.device, memory: float, precision: torch.dtype = torch.float32) -> None:
        """Copy all vectors to a GPU if they fit `memory` bytes in this precision, else read ahead.

        On a CPU they stay where they are.
        """
        if not runs_behind(device):
            return
        if precision.itemsize * self.vectors_MD.size > memory:
            self.read_ahead(device)
        else:
            self._held_MD = torch.empty(self.vectors_MD.shape, dtype=precision, device=device)
            for start in range(0, len(self.vectors_MD), BLOCK):
                block_MD = np.array(self.vectors_MD[start : start + BLOCK], np.float32)
                self._held_MD[start : start + BLOCK] = torch.from_numpy(block_MD).to(device)

    def read_ahead(self, device: torch.device) -> None:
        """Read the rows of a step in a thread, during the step before."""
        self.ahead = RowsAhead(device, lambda used_S: [self._read_host(used_S)])

    def rows(self) -> Tensor:
        """The rows in use."""
        return self._read_SD

    def select(self, used_S: NDArray[np.int64], device: torch.device) -> None:
        """Read the rows of these identities, which ascend, for the next step."""
        self.used_S = used_S
        self._read_SD = self.ahead.take(used_S)[0] if self.ahead else self.read(torch.from_numpy(used_S), device)

    def read(self, labels_B: Tensor, device: torch.device) -> Tensor:
        """The vectors of these identities."""
        if self._held_MD is not None:
            return self._held_MD[to_device(labels_B, device)].float()
        return to_device(self._read_host(labels_B.numpy()), device)

    def _read_host(self, labels_B: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.asarray(self.vectors_MD[labels_B], np.float32))

    def find(self, labels_B: Tensor) -> Tensor:
        """Where the rows of these identities are among those in use."""
        if not np.isin(labels_B.numpy(), self.used_S).all():
            raise RuntimeError("call begin_step before a batch, with all of its identities")
        return to_device(torch.from_numpy(np.searchsorted(self.used_S, labels_B.numpy())), self.rows().device)

    def row_tensors(self) -> tuple[str, ...]:
        """Names of the tensors in the state dict that have one row per identity."""
        return ()

    def store(self) -> None:
        """Write the rows in use back, where they have changed."""


class LivingVectors(FrozenVectors):
    """Code vectors that learn: they start at H, and a step moves the rows in use.

    The state of the optimizer is one number per row (`RowWiseAdagrad`).
    """

    weight_MD: Tensor
    squares_M: Tensor
    sampled_SD: nn.Parameter

    def __init__(self, vectors_MD: NDArray[np.floating[Any]], rate: float) -> None:
        """Copy the vectors, unless they are mapped for writing.

        Of a copy-on-write mapping the system copies the pages that change. What is written to any other goes to its
        file, which may be larger than memory.
        """
        super().__init__(vectors_MD)
        is_writable = isinstance(vectors_MD, np.memmap) and vectors_MD.mode != "r"
        own_MD = vectors_MD if is_writable else np.array(vectors_MD, np.float32)
        self.register_buffer("weight_MD", torch.from_numpy(own_MD))
        self.register_buffer("squares_M", torch.zeros(len(vectors_MD)))
        self.sampled_SD = nn.Parameter(torch.empty(0, vectors_MD.shape[1]))
        self.squares_S = torch.empty(0)
        self.optimizer = RowWiseAdagrad(self, rate)

    def rows(self) -> Tensor:
        """The rows in use, with gradients."""
        return self.sampled_SD

    def hold(self, device: torch.device, memory: float, precision: torch.dtype = torch.float32) -> None:
        """Move all rows and their state to a GPU if they fit `memory` bytes, else read ahead.

        They learn by steps that half of the precision would lose, so they are fp32 whatever `precision` is.
        """
        if not runs_behind(device):
            return
        if self.weight_MD.nbytes + self.squares_M.nbytes > memory:
            self.read_ahead(device)
        else:
            self.weight_MD, self.squares_M = self.weight_MD.to(device), self.squares_M.to(device)

    def read_ahead(self, device: torch.device) -> None:
        """Read the rows of a step in a thread, during the step before, and write those of the last back."""
        self.ahead = RowsAhead(device, self._read_tables, self._write_tables)
        flush = self.ahead.flush
        self.register_state_dict_pre_hook(lambda *_: flush())  # type: ignore[no-untyped-call]

    def select(self, used_S: NDArray[np.int64], device: torch.device) -> None:
        """Lend the rows of these identities, and the state of each, to the next step."""
        self.used_S = used_S
        read = self.ahead.take if self.ahead else self._read_tables
        rows_SD, self.squares_S = (_copy(each, device) for each in read(used_S))
        self._lend(rows_SD)

    def row_tensors(self) -> tuple[str, ...]:
        """The vectors, and the optimizer's state of each."""
        return ("weight_MD", "squares_M")

    @torch.no_grad()
    def store(self) -> None:
        """Write the rows in use back; those of a step that was skipped are what they were."""
        if not len(self.used_S):
            return
        write = self.ahead.put if self.ahead else self._write_tables
        write(self.used_S, [self.sampled_SD.data, self.squares_S])
        self._lend(self.sampled_SD.data[:0].clone())
        self.used_S, self.squares_S = self.used_S[:0], self.squares_S[:0]

    def _read_tables(self, used_S: NDArray[np.int64]) -> list[Tensor]:
        place_S = to_device(torch.from_numpy(used_S), self.weight_MD.device)
        return [self.weight_MD[place_S], self.squares_M[place_S]]

    def _write_tables(self, used_S: NDArray[np.int64], rows: Sequence[Tensor]) -> None:
        place_S = to_device(torch.from_numpy(used_S), self.weight_MD.device)
        for table, values in zip((self.weight_MD, self.squares_M), rows, strict=True):
            table[place_S] = values.to(table.device)

    def _lend(self, rows_SD: Tensor) -> None:
        """Give the optimizer a new parameter: the graph of the step before may still know the size of the last one."""
        self.sampled_SD = nn.Parameter(rows_SD)
        self.optimizer.param_groups[0]["params"] = [self.sampled_SD]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Only the rows in use go to another device: `hold` decides about all others."""
        rows, self._buffers = self._buffers, {}
        try:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            self._buffers = rows
        return self


class RowWiseAdagrad(Optimizer):
    """Adagrad on the sphere with one accumulated square per row.

    A row moves against its tangential gradient g by `lr` · |g| / √Σ|g|², where the sum is over its steps so far, and is
    normalised again. So `lr` is the tangent of the angle of a row's first move, whatever the scale of the loss, the
    batch size and the number of dimensions, and rows that have moved often move less.
    """

    def __init__(self, vectors: LivingVectors, rate: float) -> None:
        super().__init__([vectors.sampled_SD], {"lr": rate})
        self.vectors = vectors

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the rows in use, unless `found_inf` is set to 1, which stays on the device."""
        rows_SD, before_S = self.vectors.sampled_SD, self.vectors.squares_S
        if rows_SD.grad is None:
            return
        tangential_SD = rows_SD.grad - (rows_SD.grad * rows_SD).sum(dim=1, keepdim=True) * rows_SD
        squares_S = before_S + tangential_SD.square().sum(dim=1)
        moved_SD = rows_SD - self.param_groups[0]["lr"] * tangential_SD / squares_S.sqrt().clamp_min(SMALLEST)[:, None]
        moved_SD = nn.functional.normalize(moved_SD, dim=1)
        skipped: Tensor | None = getattr(self, "found_inf", None)
        if skipped is not None:
            moved_SD = torch.where(skipped.bool(), rows_SD, moved_SD)
            squares_S = torch.where(skipped.bool(), before_S, squares_S)
        rows_SD.copy_(moved_SD)
        self.vectors.squares_S = squares_S


def _copy(rows: Tensor, device: torch.device) -> Tensor:
    """On the device, to which rows of the host are copied without waiting."""
    return rows if rows.device.type == device.type else to_device(rows, device)
