"""Names of attempts at an artifact: who is writing, so that leftovers of the dead can be told from work."""

import os
import re
import secrets
import socket


def this_host() -> str:
    """The machine's name, fit for a path."""
    return re.sub(r"[^A-Za-z0-9]+", "_", socket.gethostname()) or "host"


def attempt_name() -> str:
    """A folder name nobody else uses: host, process, random."""
    return f"{this_host()}-{os.getpid()}-{secrets.token_hex(6)}"


def is_process_dead(host: str, process: int) -> bool:
    """True only when that process was on this machine and is gone."""
    if host != this_host():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def is_owner_dead(attempt: str) -> bool:
    """True only when the process that began the attempt was on this machine and is gone."""
    host, _, rest = attempt.partition("-")
    process = rest.partition("-")[0]
    return process.isdigit() and is_process_dead(host, int(process))
