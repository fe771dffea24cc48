"""The rows of a large matrix, wherever they lie: on the device, in memory or in a mapped file, in one process or many.

Under torchrun every process holds a contiguous range of the rows; what is said of all rows is then agreed on by all
processes, and every one of them must ask the same questions in the same order. Alone, nothing is communicated.
"""

# Shapes: N rows of the matrix, M rows of a chunk, B rows of a batch, K numbers per row, D dimensions.

from collections.abc import Callable, Iterator
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

CHUNK: Final = 2048
"""Rows on their way through the device's caches at a time."""


class Rows:
    """This process's range of a matrix [N, D]; `local` is changed in place."""

    def __init__(self, local: Tensor, *, first: int = 0, total: int | None = None, device: torch.device | None = None):
        """`local` are the rows from `first` on; chunks of them are brought to `device`, where all is computed."""
        self.local, self.first = local, first
        self.total = len(local) if total is None else total
        self.device = local.device if device is None else device
        self.shared = dist.is_initialized() and dist.get_world_size() > 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that does what one must do for all."""
        return not self.shared or dist.get_rank() == 0

    def chunks(self, size: int = CHUNK) -> Iterator[tuple[int, Tensor]]:
        """This process's rows on the device, with the number of the first of each chunk."""
        for start in range(0, len(self.local), size):
            yield self.first + start, self.local[start : start + size].to(self.device, non_blocking=True)

    def take(self, rows_B: Tensor) -> Tensor:
        """Any rows, on the device of every process."""
        mine_B, place_B = self._places(rows_B)
        if not self.shared:
            return self.local[place_B].to(self.device)
        found_BD = self.local.new_zeros((len(rows_B), *self.local.shape[1:]), device=self.device)
        found_BD[mine_B.to(self.device)] = self.local[place_B[mine_B]].to(self.device)
        return self.add(found_BD)

    def put(self, rows_B: Tensor, values_BD: Tensor) -> None:
        """Set rows; each process sets those that are its own."""
        mine_B, place_B = self._places(rows_B)
        self.local[place_B[mine_B]] = values_BD[mine_B.to(values_BD.device)].to(self.local.device, self.local.dtype)

    def sums(self, rows_BK: Tensor) -> Tensor:
        """For each row of indices the sum of those rows that this process holds: its share, before `add`."""
        mine_BK, place_BK = self._places(rows_BK)
        found_BKD = self.local[place_BK.clamp(0, max(len(self.local) - 1, 0))]
        weight_BK1 = mine_BK.to(found_BKD.dtype)[:, :, None]
        return (found_BKD * weight_BK1).sum(dim=1).to(self.device)

    def change(self, work: Callable[[Tensor], Tensor]) -> None:
        """Replace every chunk by what `work` makes of it."""
        for start, chunk_MD in self.chunks():
            begin = start - self.first
            self.local[begin : begin + len(chunk_MD)] = work(chunk_MD).to(self.local.device, self.local.dtype)

    def add(self, share: Tensor) -> Tensor:
        """The sum of all processes' shares, the same on every one."""
        if self.shared:
            dist.all_reduce(share)
        return share

    def join(self, share_BK: Tensor) -> Tensor:
        """All processes' columns side by side, in the order of their rows."""
        if not self.shared:
            return share_BK
        parts = [torch.empty_like(share_BK) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, share_BK.contiguous())
        return torch.cat(parts, dim=1)

    def agree(self, decision: bool) -> bool:
        """What the first process decides; clocks differ."""
        if not self.shared:
            return decision
        said = torch.tensor(decision and self.leads, dtype=torch.int32, device=self.device)
        return bool(self.add(said))

    def wait(self) -> None:
        """Until all processes are here."""
        self.add(torch.zeros(1, device=self.device))

    def like(self, columns: int, dtype: torch.dtype) -> "Rows":
        """Zeros with the same rows, in this process's memory."""
        values = torch.zeros((len(self.local), columns), dtype=dtype, device=self.local.device)
        return Rows(values, first=self.first, total=self.total, device=self.device)

    def _places(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Which of the rows are this process's, and where it holds them."""
        place = rows.to(self.local.device) - self.first
        return (place >= 0) & (place < len(self.local)), place


def own_range(total: int, rank: int, processes: int) -> tuple[int, int]:
    """First row of a process, and the one after its last."""
    return total * rank // processes, total * (rank + 1) // processes


def unit_rows(vectors_ND: Tensor, first: int = 0) -> Tensor:
    """The vectors on the unit sphere, detached; one that has no direction is refused, by its number from `first`."""
    if vectors_ND.ndim != 2 or not len(vectors_ND):
        raise ValueError(f"expected at least one row of vectors, got shape {tuple(vectors_ND.shape)}")
    norm_N1: Tensor = torch.linalg.vector_norm(vectors_ND.detach(), dim=1, keepdim=True)
    bad_N = ~(norm_N1[:, 0].isfinite() & (norm_N1[:, 0] > 0))
    if bad_N.any():
        raise ValueError(f"vector {first + int(bad_N.nonzero()[0, 0])} is zero or not finite: it has no direction")
    return vectors_ND.detach() / norm_N1
