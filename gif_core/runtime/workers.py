"""Processes that end when nobody waits for them any more."""

import os
import time
from threading import Thread
from typing import Final

STARTED_BY: Final = "GIF_STARTED_BY"
"""Environment variable with the number of the process that waits for the result."""
FAULT: Final = "fault"
"""What a process that tells its progress in JSON calls the reason why it ends, and need not be started again."""
KIND: Final = "kind"
"""And what it calls the name of that reason's class."""


def describe_fault(error: Exception) -> dict[str, str]:
    """A fault as the process tells it."""
    return {FAULT: str(error), KIND: type(error).__name__}


def end_with_parent(seconds: float = 0.5) -> None:
    """End this process soon after its parent, or whoever `GIF_STARTED_BY` names, is gone, however that came about."""
    awaited = [os.getppid(), int(os.environ.get(STARTED_BY, os.getppid()))]
    Thread(target=_watch, args=(awaited, seconds), daemon=True, name="gif-parent").start()


def _watch(awaited: list[int], seconds: float) -> None:
    while os.getppid() == awaited[0] and all(map(_is_running, awaited)):
        time.sleep(seconds)
    os._exit(1)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
