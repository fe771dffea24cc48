"""Peak memory of a block: allocated on a GPU, resident on a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gif_core.runtime import MemoryWatch


class PeakMemory:
    """Bytes, after the block; None where the system does not report them."""

    peak: int | None = None


@contextmanager
def watched_memory(device: torch.device) -> Iterator[PeakMemory]:
    """The peak within the block."""
    found = PeakMemory()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield found
        found.peak = torch.cuda.max_memory_allocated(device)
        return
    with MemoryWatch(0.1) as watch:
        yield found
    found.peak = watch.peak
