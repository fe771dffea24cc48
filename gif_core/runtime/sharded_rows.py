"""A large matrix whose rows are divided among processes: on the device, in memory or in a mapped file.

Under torchrun every process holds a contiguous range of the rows, and all processes must call the collective methods
in the same order. A single process communicates nothing.
"""

# Shapes: N rows of the matrix, M rows of a chunk, B rows of a batch, K numbers per row, D dimensions, 1 one column.

from collections.abc import Callable, Iterator
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

CHUNK: Final = 2048
"""Rows processed at a time: few enough for the device's caches."""


class ShardedRows:
    """This process's range of the rows of a matrix [N, D]; methods change `local` in place."""

    def __init__(self, local: Tensor, *, first: int = 0, total: int | None = None, device: torch.device | None = None):
        """`local` holds the rows from `first` on; chunks of them are moved to `device` for computation."""
        self.local, self.first = local, first
        self.total = len(local) if total is None else total
        self.device = local.device if device is None else device
        self.shared = dist.is_initialized() and dist.get_world_size() > 1

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which does the work that only one process may do."""
        return not self.shared or dist.get_rank() == 0

    def chunks(self, size: int = CHUNK) -> Iterator[tuple[int, Tensor]]:
        """Chunks of this process's rows on the device, each with its first row number."""
        for start in range(0, len(self.local), size):
            yield self.first + start, self.local[start : start + size].to(self.device, non_blocking=True)

    def take(self, rows_B: Tensor) -> Tensor:
        """Rows of any process, on the device of every process (collective)."""
        mine_B, place_B = self._places(rows_B)
        if not self.shared:
            return self.local[place_B].to(self.device)
        found_BD = self.local.new_zeros((len(rows_B), *self.local.shape[1:]), device=self.device)
        found_BD[mine_B.to(self.device)] = self.local[place_B[mine_B]].to(self.device)
        return self.add(found_BD)

    def put(self, rows_B: Tensor, values_BD: Tensor) -> None:
        """Set rows; each process sets the ones that it holds."""
        mine_B, place_B = self._places(rows_B)
        self.local[place_B[mine_B]] = values_BD[mine_B.to(values_BD.device)].to(self.local.device, self.local.dtype)

    def sums(self, rows_BK: Tensor) -> Tensor:
        """For each row of indices, the sum of the rows that this process holds; `add` completes it."""
        mine_BK, place_BK = self._places(rows_BK)
        found_BKD = self.local[place_BK.clamp(0, max(len(self.local) - 1, 0))]
        weight_BK1 = mine_BK.to(found_BKD.dtype)[:, :, None]
        return (found_BKD * weight_BK1).sum(dim=1).to(self.device)

    def change(self, work: Callable[[Tensor], Tensor]) -> None:
        """Replace every chunk by `work(chunk)`."""
        for start, chunk_MD in self.chunks():
            begin = start - self.first
            self.local[begin : begin + len(chunk_MD)] = work(chunk_MD).to(self.local.device, self.local.dtype)

    def add(self, share: Tensor) -> Tensor:
        """The sum of all processes' tensors (all-reduce), in place."""
        if self.shared:
            dist.all_reduce(share)
        return share

    def join(self, share_BK: Tensor) -> Tensor:
        """Concatenate the columns of all processes in order of rank."""
        if not self.shared:
            return share_BK
        parts = [torch.empty_like(share_BK) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, share_BK.contiguous())
        return torch.cat(parts, dim=1)

    def agree(self, decision: bool) -> bool:
        """The decision of rank 0, for conditions that differ between processes, such as time."""
        if not self.shared:
            return decision
        decided = torch.tensor(decision and self.leads, dtype=torch.int32, device=self.device)
        return bool(self.add(decided))

    def wait(self) -> None:
        """Block until all processes have called this."""
        self.add(torch.zeros(1, device=self.device))

    def like(self, columns: int, dtype: torch.dtype) -> "ShardedRows":
        """A matrix of zeros with the same division of rows."""
        values = torch.zeros((len(self.local), columns), dtype=dtype, device=self.local.device)
        return ShardedRows(values, first=self.first, total=self.total, device=self.device)

    def _places(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Whether this process holds each row, and its index in `local`."""
        place = rows.to(self.local.device) - self.first
        return (place >= 0) & (place < len(self.local)), place


def own_range(total: int, rank: int, processes: int) -> tuple[int, int]:
    """The range of rows of a process: first, and end (exclusive)."""
    return total * rank // processes, total * (rank + 1) // processes


def unit_rows(vectors_ND: Tensor, first: int = 0) -> Tensor:
    """Scale vectors to unit length, detached. A zero or non-finite vector is an error that names its row number."""
    if vectors_ND.ndim != 2 or not len(vectors_ND):
        raise ValueError(f"expected at least one row of vectors, got shape {tuple(vectors_ND.shape)}")
    norm_N1: Tensor = torch.linalg.vector_norm(vectors_ND.detach(), dim=1, keepdim=True)
    bad_N = ~(norm_N1[:, 0].isfinite() & (norm_N1[:, 0] > 0))
    if bad_N.any():
        raise ValueError(f"vector {first + int(bad_N.nonzero()[0, 0])} is zero or not finite: it has no direction")
    return vectors_ND.detach() / norm_N1
