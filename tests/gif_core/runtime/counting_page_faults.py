"""Page faults and resident memory of steps on a CPU in a fresh process: before, while and after kernels are tuned."""

import json
import os
import resource
import sys
from pathlib import Path

import torch

from gif_core.runtime import tuned_kernels

STEP = 64_000_000
"""Bytes that a step allocates and frees."""


def count_page_faults() -> int:
    """Page faults of twenty steps."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.zeros(STEP, dtype=torch.uint8).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_bytes() -> int:
    """Memory of this process that is in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    count_page_faults()
    counts = {"ordinary_faults": count_page_faults(), "before": resident_bytes()}
    with tuned_kernels(torch.device("cpu"), reduced=False):
        count_page_faults()  # until the heap has holes that fit
        counts |= {"tuned_faults": count_page_faults(), "kept": resident_bytes()}
    json.dump(counts | {"after": resident_bytes()}, sys.stdout)
