import resource
import sys

import pytest
import torch

from gif_core.runtime import tuned_kernels


def count_page_faults() -> int:
    """Page faults of twenty steps that allocate 64 MB and free it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.zeros(64_000_000, dtype=torch.uint8).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_steps_on_a_cpu_reuse_the_memory_that_the_step_before_has_freed() -> None:
    ordinary = count_page_faults()
    with tuned_kernels(torch.device("cpu"), reduced=False):
        kept = count_page_faults()
    assert kept < 0.2 * ordinary
