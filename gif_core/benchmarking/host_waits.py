"""Counts how often the host waits for a GPU, by PyTorch's own check for synchronising calls.

A CPU has no queue to wait for. What the host would wait for with a GPU is counted in `tests/`, on a pretended one.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import torch

SYNCHRONISING: Final = "called a synchronizing CUDA operation"
"""What PyTorch warns of in the mode `warn`."""


class Waits:
    """How many there were; None where nothing can be counted."""

    count: int | None = None


@contextmanager
def counted_waits(device: torch.device) -> Iterator[Waits]:
    """Count within the block."""
    waits = Waits()
    if device.type != "cuda":
        yield waits
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode(before)
    waits.count = count_synchronising(found)


def count_synchronising(found: Iterable[warnings.WarningMessage]) -> int:
    """How many warnings are about a synchronising call."""
    return sum(SYNCHRONISING in str(each.message) for each in found)
