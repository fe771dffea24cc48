"""The processes that train together, under torchrun or alone.

Every one of them must ask the same questions in the same order. Alone, nothing is communicated.
"""

import gc
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gif_core.runtime.devices import check_gpus, pick_device


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """Which of how many processes this is, and the device it computes on."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that does what one must do for all."""
        return self.rank == 0

    def any(self, *said: bool) -> list[bool]:
        """For each question, whether any process says yes to it."""
        if self.size == 1:
            return list(said)
        return self.sum(torch.tensor(said, dtype=torch.float32, device=self.device)).bool().tolist()

    def sum(self, share: Tensor) -> Tensor:
        """The sum of all processes' shares, the same on every one."""
        if self.size > 1:
            dist.all_reduce(share)
        return share

    def gather(self, share: Any) -> list[Any]:
        """What every process gives, by rank: plain values, not tensors."""
        if self.size == 1:
            return [share]
        shares: list[Any] = [None] * self.size
        dist.all_gather_object(shares, share)
        return shares

    def average(self, gradients: Iterable[Tensor]) -> None:
        """Replace gradients by their mean over the processes, all in one message."""
        parts = list(gradients)
        if self.size == 1 or not parts:
            return
        flat = self.sum(torch.cat([part.flatten() for part in parts])) / self.size
        sizes = [part.numel() for part in parts]
        for part, mean in zip(parts, torch.split(flat, sizes), strict=True):
            part.copy_(mean.view_as(part))


def join_processes(device_name: str, **meeting: Any) -> ProcessGroup:
    """Join the processes that torchrun started, or those of a `meeting` as PyTorch takes it.

    Each of a machine has a GPU of its own. Who joins must leave.
    """
    device = pick_device(device_name)
    check_gpus(device, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    from torch.distributed import nn  # noqa: F401 - loaded later, as DDP does, it would hold the group to the very end

    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", **meeting)
    return ProcessGroup(device, dist.get_rank(), dist.get_world_size())


def leave_processes() -> None:
    """End the group, if there is one, and its threads; whatever used it must be out of reach.

    PyTorch ends the threads when nothing holds the group any more. One that lives until the interpreter ends, and gives
    back a tensor just then, aborts the process (gloo: "terminate called without an active exception").
    """
    if dist.is_initialized():
        dist.destroy_process_group()
        gc.collect()
