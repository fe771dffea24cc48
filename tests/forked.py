"""Work in a forked child, of which nothing comes back into the tests."""

import os
import traceback
from collections.abc import Callable


def run_forked(work: Callable[[], object]) -> int:
    """Do this in a child and give its exit code: 0 at the end of the work, 1 after an error, less when killed."""
    if (child := os.fork()) == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
