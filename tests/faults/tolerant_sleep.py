"""Runs a module under libfaketime: `python -m tests.faults.tolerant_sleep MODULE ARGUMENTS`.

Under libfaketime `time.sleep` ends with "Invalid argument" when its end has passed before the system is asked, as it
does for short sleeps and on a busy machine. Here such a sleep has ended.
"""

import errno
import runpy
import sys
import time

sleep = time.sleep


def tolerant_sleep(seconds: float) -> None:
    """Sleep, or return if the end has passed."""
    try:
        sleep(seconds)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


if __name__ == "__main__":
    time.sleep = tolerant_sleep
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
