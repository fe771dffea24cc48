"""Families of processes: whatever was started with a mark in its environment, however deep below, ends together.

Prefect's worker and torchrun start their processes in sessions of their own, so that neither a process group nor the
tree of parents finds all of them once one in the middle has died. The environment is inherited by every one.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

MARK: Final = "GIF_FAMILY"
"""Environment variable with the family's name."""
PATIENCE: Final = 30.0
"""Seconds that a family has to end by itself when it is told to."""


def find_family(name: str) -> set[int]:
    """Living processes that were started with this mark; none where there is no /proc to ask."""
    wanted, found = f"{MARK}={name}".encode(), set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
    return found - {os.getpid()}


def end_family(name: str, patience: float = PATIENCE) -> None:
    """Tell every member to end, once, and end those that have not after `patience` seconds."""
    for sign, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, PATIENCE)):
        told: set[int] = set()
        end = time.monotonic() + seconds
        while (members := find_family(name)) and time.monotonic() < end:
            for process in members - told:
                with suppress(ProcessLookupError):
                    os.kill(process, sign)
            told |= members
            time.sleep(0.05)
        if not members:
            return


def main() -> None:
    """Read lines until whoever writes them is gone; then end the families and remove the files, the last one first.

    A line is the absolute path of a file, or else the name of a family.
    """
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_IGN)
    for line in reversed(sys.stdin.read().splitlines()):
        if Path(line).is_absolute():
            Path(line).unlink(missing_ok=True)
        else:
            end_family(line)


if __name__ == "__main__":
    main()
