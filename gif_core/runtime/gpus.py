"""Memory and time of the GPUs that a stage uses, as the driver reports them.

The driver is asked because a stage may compute in many processes, and because asking PyTorch would take memory of every
GPU. Memory that was in use before does not count; other programs that start meanwhile do.
"""

import shutil
import subprocess
import time
from typing import Final

from gif_core.runtime.sampling import Sampling

QUERY: Final = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
MEBIBYTE: Final = 2**20
IN_USE: Final = 100 * MEBIBYTE
"""Bytes above those at the beginning from which a GPU counts as used: any CUDA context takes more."""


class GpuWatch(Sampling):
    """Samples the GPUs of this machine while it is open; without any it does nothing."""

    def __init__(self, seconds: float = 2.0) -> None:
        """Sample every `seconds`."""
        self.peak: int | None = None
        """Most bytes that were used of one GPU; None without GPUs, or if none was used."""
        self.gpu_seconds: float | None = None
        """Seconds that GPUs were used, added up over them."""
        super().__init__(seconds, "gif-gpus")

    def begin(self) -> bool:
        """Remember what is in use before."""
        self._before, self._last = memory_of_gpus(), time.monotonic()
        return bool(self._before)

    def sample(self) -> None:
        """Add what is in use now to the peak, and the time since the last sample to the seconds."""
        used, now = memory_of_gpus(), time.monotonic()
        self._add(used, now - self._last)
        self._last = now

    def _add(self, used: list[int], seconds: float) -> None:
        own = [now - before for now, before in zip(used, self._before, strict=False) if now - before > IN_USE]
        if own:
            self.peak = max(self.peak or 0, *own)
            self.gpu_seconds = (self.gpu_seconds or 0.0) + seconds * len(own)


def memory_of_gpus() -> list[int]:
    """Bytes in use of every GPU of this machine; empty without a driver."""
    if shutil.which(QUERY[0]) is None:
        return []
    try:
        answer = subprocess.run(QUERY, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [int(line) * MEBIBYTE for line in answer.stdout.split() if line.isdigit()]
