import json
import subprocess
import sys

import pytest

from tests.conftest import PROJECT
from tests.gif_core.runtime.counting_page_faults import STEP


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_steps_on_a_cpu_reuse_freed_memory_and_give_it_back_at_the_end() -> None:
    """In a fresh process: what is free in the heap depends on all that was allocated before."""
    command = [sys.executable, "-m", "tests.gif_core.runtime.counting_page_faults"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout)
    assert counts["tuned_faults"] < 0.2 * counts["ordinary_faults"]
    assert counts["kept"] > counts["before"] + 0.4 * STEP, "some of it was kept"
    assert counts["after"] < counts["before"] + 0.1 * STEP, "and given back at the end"
