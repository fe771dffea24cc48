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
