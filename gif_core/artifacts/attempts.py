"""Names of attempts at an artifact: who is writing, so that leftovers of the dead can be told from work."""

import hashlib
import os
import re
import secrets
import socket
from functools import cache
from pathlib import Path
from typing import Literal

State = Literal["alive", "dead", "unknown"]
ABANDONED = "abandoned"
MARKER = ".attempt"
"""A file that names the artifact an attempt is for, there before anything else of it is written."""


@cache
def this_host() -> str:
    """Name of this machine since it was started: process numbers mean the same wherever it is the same."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", socket.gethostname()) or "host"
    boot, processes = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    marks = [
        boot.read_text() if boot.is_file() else "",
        str(processes.stat().st_ino) if processes.exists() else "",
    ]
    return f"{name}_{hashlib.sha256(''.join(marks).encode()).hexdigest()[:8]}"


def attempt_name() -> str:
    """A folder name nobody else uses: host, process, random."""
    return f"{this_host()}-{os.getpid()}-{secrets.token_hex(6)}"


def process_state(host: str, process: int) -> State:
    """Whether a process still runs; nobody knows that of another machine's."""
    if host != this_host():
        return "unknown"
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return "dead"
    except PermissionError:
        pass
    return "alive"


def owner_state(attempt: str) -> State:
    """Whether the process that began the attempt still runs."""
    host, _, rest = attempt.partition("-")
    process = rest.partition("-")[0]
    return process_state(host, int(process)) if process.isdigit() else "unknown"


def abandon(folder: Path) -> None:
    """Leave an attempt's folder to the next attempt at the same artifact, under a name that is nobody's."""
    folder.rename(folder.with_name(f"{this_host()}-{ABANDONED}-{secrets.token_hex(6)}"))


def adopt(folder: Path, artifact: str, *, published: str | None) -> bool:
    """Take over what a dead or failed attempt at the same artifact left beside `folder`; a rename decides who does.

    The `published` attempt is never touched: its files are the artifact.
    """
    for left in sorted(folder.parent.glob(f"{this_host()}-*")):
        free = left.name.split("-")[1] == ABANDONED or owner_state(left.name) == "dead"
        try:
            if free and left.name != published and (left / MARKER).read_text() == artifact:
                left.rename(folder)
                return True
        except OSError:
            continue
    return False
