"""Names of attempts at an artifact: who is writing, so that leftovers of the dead can be told from work."""

import fcntl
import hashlib
import os
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import IO, Final, Literal

State = Literal["alive", "dead", "unknown"]
ABANDONED = "abandoned"
MARKER = ".attempt"
"""A file that says what an attempt is for, artifact and inputs, there before anything else of it is written."""

MOUNTS: Final = Path("/proc/self/mountinfo")
OWN_DISKS: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "tmpfs"})
"""Disks that belong to one machine; on others, such as those of a network, locks may not be seen by all."""


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


def begin_attempt(folder: Path, purpose: str, *, resume: bool, published: Callable[[], str | None]) -> IO[str]:
    """Make the folder of an attempt; the file that says what it is for, locked for as long as it is open.

    With `resume`, take over what a dead or failed attempt at the very same left beside it; a rename decides who does.
    The `published` attempt is never touched: its files are the artifact.
    """
    for left in sorted(folder.parent.glob("*-*")) if resume else ():
        if taken := _take(left, folder, purpose, published):
            return taken
    folder.mkdir(parents=True, exist_ok=True)
    unnamed = folder / f"{MARKER}.new"
    marker = unnamed.open("w")
    _lock(marker)
    marker.write(purpose)
    marker.flush()
    unnamed.rename(folder / MARKER)
    return marker


def _take(left: Path, folder: Path, purpose: str, published: Callable[[], str | None]) -> IO[str] | None:
    """Bring an attempt at the same that is nobody's to `folder`; until the lock is ours, its owner may end it."""
    with suppress(OSError), ExitStack() as unless_taken:
        marker = unless_taken.enter_context((left / MARKER).open("r+"))
        if not _is_nobodys(left, locked=_lock(marker)):
            return None
        if (left / MARKER).read_text() == purpose and left.name != published():
            left.rename(folder)
            unless_taken.pop_all()
            return marker
    return None


def _is_nobodys(left: Path, *, locked: bool) -> bool:
    """Whether its owner has given it up or is dead for sure.

    Of an owner that had another system or container below it, a lock tells that nobody else holds, where the disk is
    this machine's own; on a disk of the network it may be another machine's, which is not to be judged.
    """
    if left.name.split("-")[1] == ABANDONED:
        return True
    state = owner_state(left.name)
    return state == "dead" or (state == "unknown" and locked and _is_own_disk(left))


def _lock(marker: IO[str]) -> bool:
    """Lock it if nobody else has, and say whether it is ours; the lock goes with the process."""
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_own_disk(folder: Path) -> bool:
    """Whether all who can write there have the same kernel, and so see each other's locks."""
    device = folder.stat().st_dev
    for line in MOUNTS.read_text().splitlines() if MOUNTS.is_file() else ():
        about, _, kind = line.partition(" - ")
        if about.split()[2] == f"{os.major(device)}:{os.minor(device)}":
            return kind.split()[0] in OWN_DISKS
    return False
