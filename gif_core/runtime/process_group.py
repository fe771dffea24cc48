"""The group of processes that train together, started by torchrun, or a single process.

All processes must call the collective methods in the same order. A single process communicates nothing. Tensors of the
device travel by the group of the device (NCCL); what the host wants to know travels by a group of the hosts (gloo), so
that it does not wait for the device.
"""

import gc
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from gif_core.runtime.devices import check_gpus, pick_device

PATIENCE_SECONDS: Final = 3600.0
"""How long a process waits for the others in one message: longer than a validation that the first process runs."""
_hosts: list[dist.ProcessGroup] = []
"""The group of the hosts, where the device's own group is another one."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """This process's rank, the number of processes, and this process's device."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which does the work that only one process may do."""
        return self.rank == 0

    @property
    def spans_machines(self) -> bool:
        """Whether some of the processes run on other machines."""
        return self.size > int(os.environ.get("LOCAL_WORLD_SIZE", self.size))

    def any(self, *flags: bool) -> list[bool]:
        """For each flag, whether any process has set it."""
        if self.size == 1:
            return list(flags)
        counts = torch.tensor(flags, dtype=torch.float32)
        dist.all_reduce(counts, group=host_group())
        return counts.bool().tolist()

    def sum(self, share: Tensor) -> Tensor:
        """The sum of all processes' tensors (all-reduce), in place."""
        if self.size > 1:
            dist.all_reduce(share)
        return share

    def gather(self, share: Any) -> list[Any]:
        """The values of all processes in order of rank: picklable values, not tensors."""
        if self.size == 1:
            return [share]
        shares: list[Any] = [None] * self.size
        dist.all_gather_object(shares, share, group=host_group())
        return shares

    def average(self, gradients: Iterable[Tensor]) -> None:
        """Replace gradients by their mean over the processes, in one message."""
        parts = list(gradients)
        if self.size == 1 or not parts:
            return
        flat = self.sum(torch.cat([part.flatten() for part in parts])) / self.size
        sizes = [part.numel() for part in parts]
        for part, mean in zip(parts, torch.split(flat, sizes), strict=True):
            part.copy_(mean.view_as(part))


def join_processes(device_name: str, *, patience: float = PATIENCE_SECONDS, **meeting: Any) -> ProcessGroup:
    """Join the process group that torchrun started, or the one that `meeting` describes to PyTorch.

    Each process of a machine uses its own GPU. A message that takes longer than `patience` seconds is an error. Call
    `leave_processes` afterwards.
    """
    device = pick_device(device_name)
    check_gpus(device, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    from torch.distributed import nn  # noqa: F401 - imported later, as DDP does, it would keep the group alive

    limit = timedelta(seconds=patience)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=limit, **meeting)
    if device.type == "cuda":
        _hosts.append(dist.new_group(backend="gloo", timeout=limit))
    return ProcessGroup(device, dist.get_rank(), dist.get_world_size())


def host_group() -> dist.ProcessGroup | None:
    """The group for messages between hosts; None is the group of all processes, where that is gloo itself."""
    return _hosts[0] if _hosts else None


def gather_on_hosts(part_B: Tensor) -> Tensor:
    """Concatenate the equally sized host tensors of all processes in order of rank."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return part_B
    parts = [torch.empty_like(part_B) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part_B.contiguous(), group=host_group())
    return torch.cat(parts)


def leave_processes() -> None:
    """Destroy the process group, if there is one, and its threads. No object may refer to the group any more.

    PyTorch ends the threads when the last reference is gone. A thread that outlives the interpreter and then frees a
    tensor aborts the process (gloo: "terminate called without an active exception").
    """
    if dist.is_initialized():
        _hosts.clear()
        dist.destroy_process_group()
        gc.collect()
