"""Worker processes: ending with the process that started them, and reporting why they failed."""

import os
import time
from threading import Thread
from typing import Final

STARTED_BY: Final = "GIF_STARTED_BY"
"""Environment variable with the id of the process that waits for the result."""
FAULT: Final = "fault"
"""JSON field with the message of an error that a restart would not fix."""
KIND: Final = "kind"
"""JSON field with the class name of that error."""


def describe_fault(error: Exception) -> dict[str, str]:
    """The JSON object by which a worker reports an error that a restart would not fix."""
    return {FAULT: str(error), KIND: type(error).__name__}


def end_with_parent(seconds: float = 0.5) -> None:
    """End this process soon after its parent, or the process that `GIF_STARTED_BY` names, has ended."""
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
