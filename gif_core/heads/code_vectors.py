"""Code vectors during training: the rows of H that a step uses, which are constant or learn.

All rows stay in host memory or in a mapped file; only those of the batch's identities and of the drawn negatives travel
to the device. `LivingVectors` writes them back after the step. Every process has the same rows in use and receives the
same gradient of them, so all of them hold the same H, and one process gives the same result as several.
"""

# Shapes: M identities, S rows in use, B images of this process, D dimensions.

from collections.abc import Callable
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from gif_core.runtime import to_device

SMALLEST: Final = 1e-12
"""Lower bound of the norms that divide."""


class FrozenVectors(nn.Module):
    """Code vectors that stay what separation made them, as in the paper."""

    def __init__(self, vectors_MD: NDArray[np.floating[Any]]) -> None:
        """The vectors may be mapped from a file: only the rows in use are read."""
        super().__init__()
        self.vectors_MD = vectors_MD
        self.used_S: NDArray[np.int64] = np.empty(0, np.int64)
        self._read_SD = torch.empty(0, vectors_MD.shape[1])

    def rows(self) -> Tensor:
        """The rows in use."""
        return self._read_SD

    def select(self, used_S: NDArray[np.int64], device: torch.device) -> None:
        """Read the rows of these identities, which ascend, for the next step."""
        self.used_S = used_S
        self._read_SD = self.read(torch.from_numpy(used_S), device)

    def read(self, labels_B: Tensor, device: torch.device) -> Tensor:
        """The vectors of these identities."""
        return to_device(torch.from_numpy(np.asarray(self.vectors_MD[labels_B.numpy()], np.float32)), device)

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
        self.optimizer = RowWiseAdagrad(self, rate)

    def rows(self) -> Tensor:
        """The rows in use, with gradients."""
        return self.sampled_SD

    def select(self, used_S: NDArray[np.int64], device: torch.device) -> None:
        """Lend the rows of these identities to the next step."""
        self.used_S = used_S
        self._lend(to_device(self.weight_MD[torch.from_numpy(used_S)], device))

    def row_tensors(self) -> tuple[str, ...]:
        """The vectors, and the optimizer's state of each."""
        return ("weight_MD", "squares_M")

    @torch.no_grad()
    def store(self) -> None:
        """Write the rows in use back; those of a step that was skipped are what they were."""
        self.weight_MD[torch.from_numpy(self.used_S)] = self.sampled_SD.data.to(self.weight_MD.device)
        self._lend(self.sampled_SD.data[:0].clone())
        self.used_S = self.used_S[:0]

    def _lend(self, rows_SD: Tensor) -> None:
        """Give the optimizer a new parameter: the graph of the step before may still know the size of the last one."""
        self.sampled_SD = nn.Parameter(rows_SD)
        self.optimizer.param_groups[0]["params"] = [self.sampled_SD]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Only the rows in use go to another device: all rows stay in host memory."""
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
        """Move the rows in use."""
        rows_SD, used_S = self.vectors.sampled_SD, torch.from_numpy(self.vectors.used_S)
        if rows_SD.grad is None:
            return
        tangential_SD = rows_SD.grad - (rows_SD.grad * rows_SD).sum(dim=1, keepdim=True) * rows_SD
        squares_S = to_device(self.vectors.squares_M[used_S], rows_SD.device) + tangential_SD.square().sum(dim=1)
        moved_SD = rows_SD - self.param_groups[0]["lr"] * tangential_SD / squares_S.sqrt().clamp_min(SMALLEST)[:, None]
        rows_SD.copy_(nn.functional.normalize(moved_SD, dim=1))
        self.vectors.squares_M[used_S] = squares_S.to(self.vectors.squares_M.device)
