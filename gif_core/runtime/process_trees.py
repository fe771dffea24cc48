"""Ending all descendants of a service together: they are found by a mark in their environment.

Prefect's worker and torchrun start processes in new sessions, so neither a process group nor the tree of parents finds
all of them once a process in between has died. Every descendant inherits the environment.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

MARK: Final = "GIF_FAMILY"
"""Environment variable that holds the name of the process tree."""
PATIENCE: Final = 30.0
"""Seconds between SIGTERM and SIGKILL."""


def find_process_tree(name: str) -> set[int]:
    """Running processes with this mark, without the caller; none on systems without /proc."""
    wanted, found = f"{MARK}={name}".encode(), set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
    return found - {os.getpid()}


def end_process_tree(name: str, patience: float = PATIENCE) -> None:
    """Send SIGTERM to every process with this mark, and SIGKILL to those left after `patience` seconds."""
    for sign, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, PATIENCE)):
        signalled: set[int] = set()
        end = time.monotonic() + seconds
        while (members := find_process_tree(name)) and time.monotonic() < end:
            for process in members - signalled:
                with suppress(ProcessLookupError):
                    os.kill(process, sign)
            signalled |= members
            time.sleep(0.05)
        if not members:
            return


def main() -> None:
    """Read lines from stdin until its writer is gone; then end process trees and remove files, last line first.

    A line is the absolute path of a file, or the name of a process tree.
    """
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_IGN)
    for line in reversed(sys.stdin.read().splitlines()):
        if Path(line).is_absolute():
            Path(line).unlink(missing_ok=True)
        else:
            end_process_tree(line)


if __name__ == "__main__":
    main()
