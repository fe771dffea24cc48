"""Choosing the device of a process, and copying to it.

It is chosen once, by the caller; computations follow the device of their input.
"""

import fcntl
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import IO, Final

import torch

from gif_core.runtime.allocation import freed_memory_kept
from schemas.errors import GifError

MISSING: Final = {
    "cuda": "no GPU here: install a CUDA build of PyTorch, or set execution.device=cpu",
    "mps": "no Apple GPU here: set execution.device=cpu",
}
_claims: list[IO[str]] = []
"""Lock files of the GPUs that this process has claimed, held until it ends."""


def pick_device(name: str) -> torch.device:
    """The device called `name`; `auto` is a GPU if there is one, else the CPU."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind in there if there[kind]))
    if not there.get(torch.device(name).type, True):
        raise GifError(f"execution.device={name}, but PyTorch sees {MISSING[torch.device(name).type]}")
    return torch.device(name)


def check_gpus(device: torch.device, processes: int) -> None:
    """Reject more processes per machine than it has GPUs: each process needs its own GPU."""
    gpus = torch.cuda.device_count() if device.type == "cuda" else processes
    if processes > gpus:
        raise GifError(
            f"execution.processes={processes}, but PyTorch sees {gpus} GPU{'s' * (gpus != 1)} here and each process "
            f"needs its own: set execution.processes to at most {gpus}, or execution.device=cpu"
        )


@cache
def own_device(name: str) -> torch.device:
    """Like `pick_device`, but concurrent processes get different GPUs as long as there are enough."""
    device = pick_device(name)
    if device.type != "cuda" or torch.cuda.device_count() < 2:
        return device
    gpus = [str(torch.cuda.get_device_properties(gpu).uuid) for gpu in range(torch.cuda.device_count())]
    return torch.device("cuda", claim_one(gpus))


def claim_one(names: Sequence[str]) -> int:
    """Index of the first name that no other process of this user has claimed; the claim ends with the process."""
    folder = Path(tempfile.gettempdir(), f"gif-claims-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    for number, name in enumerate(names):
        file = (folder / name).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            continue
        _claims.append(file)
        return number
    return os.getpid() % len(names)


def runs_behind(device: torch.device) -> bool:
    """Whether the device works through a queue while the host goes on, until the host asks for a result (CUDA)."""
    return device.type not in ("cpu", "mps", "meta")


def device_memory(device: torch.device) -> float:
    """Bytes of a GPU's memory; infinite where it is that of the host or unknown."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else math.inf


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a host tensor to the device without waiting for it."""
    return (tensor.pin_memory() if runs_behind(device) else tensor).to(device, non_blocking=True)


def copies_made(device: torch.device) -> Callable[[], None]:
    """What any thread calls to wait until the device has made the copies that it was asked for so far."""
    if device.type == "mps":
        return torch.mps.synchronize
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event.synchronize


@contextmanager
def tuned_kernels(device: torch.device, *, reduced: bool) -> Iterator[None]:
    """For shapes that stay the same: on CUDA let cuDNN measure which algorithm is fastest, on a CPU keep freed memory.

    `reduced`: products of fp32 matrices in TF32, which rounds factors to eleven bits, as fp16 does.
    """
    benchmark, precision = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high" if reduced else precision)
    try:
        with freed_memory_kept() if device.type == "cpu" else nullcontext():
            yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        torch.set_float32_matmul_precision(precision)
