"""The core: how everything is computed, with plain values and arrays in and out."""

import os
from contextlib import suppress
from pathlib import Path

LOAD = Path("/proc/loadavg")
PRESSURE = Path("/proc/pressure/cpu")
WAITING = 20.0
"""Percent of the last ten seconds in which some program waited for a processor, from which a machine counts as busy."""


UNKNOWN = (OSError, ValueError, IndexError)
"""What reading them raises where they are missing, or are not what Linux writes, as in some containers."""


def _is_busy() -> bool:
    """Whether other programs use all processors of this machine, on Linux."""
    with suppress(*UNKNOWN):
        running = int(LOAD.read_text().split()[3].partition("/")[0]) - 1
        if running >= (os.cpu_count() or 1):
            return True
    with suppress(*UNKNOWN):
        return float(PRESSURE.read_text().split("avg10=")[1].split()[0]) > WAITING
    return False


# OpenMP reads this when it is loaded, with the first package that computes. Threads that wait for each other by
# spinning are fastest on a free machine; on a busy one they keep the processors from those that they wait for.
if "OMP_WAIT_POLICY" not in os.environ and _is_busy():
    os.environ["OMP_WAIT_POLICY"] = "passive"
