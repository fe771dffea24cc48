"""Memory and time of the GPUs that a stage uses, as the driver reports them.

The driver is asked because a stage may compute in many processes, and because asking PyTorch would take memory of every
GPU. Memory that was in use before does not count; other programs that start meanwhile do.
"""

import shutil
import subprocess
import threading
import time
from types import TracebackType
from typing import Final, Self

QUERY: Final = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
MEBIBYTE: Final = 2**20
IN_USE: Final = 100 * MEBIBYTE
"""Bytes above those at the beginning from which a GPU counts as used: any CUDA context takes more."""


class GpuWatch:
    """Samples the GPUs of this machine while it is open; without any it does nothing."""

    def __init__(self, seconds: float = 2.0) -> None:
        """Sample every `seconds`."""
        self.peak: int | None = None
        """Most bytes that were used of one GPU; None without GPUs, or if none was used."""
        self.gpu_seconds: float | None = None
        """Seconds that GPUs were used, added up over them."""
        self._seconds, self._closing = seconds, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="gif-gpus")

    def __enter__(self) -> Self:
        """Start sampling."""
        self._before = memory_of_gpus()
        if self._before:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._closing.set()
        if self._thread.ident:
            self._thread.join()

    def _sample(self) -> None:
        last = time.monotonic()
        while True:
            closing = self._closing.wait(self._seconds)
            now = time.monotonic()
            self._add(memory_of_gpus(), now - last)
            last = now
            if closing:
                return

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
