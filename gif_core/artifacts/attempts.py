"""Attempts to write an artifact: their names say which process writes, so that leftovers of dead ones are found."""

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
"""Stands for the process in the name of an attempt that was given up."""
MARKER = ".attempt"
"""File with the purpose of an attempt (artifact and inputs), written before its other files."""

MOUNTS: Final = Path("/proc/self/mountinfo")
OWN_DISKS: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "tmpfs"})
"""File systems of one machine. On others, such as network file systems, locks may not be visible to every machine."""


@cache
def this_host() -> str:
    """Name of this machine, boot and process namespace: process ids are comparable where it is equal."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", socket.gethostname()) or "host"
    boot, processes = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    marks = [
        boot.read_text() if boot.is_file() else "",
        str(processes.stat().st_ino) if processes.exists() else "",
    ]
    return f"{name}_{hashlib.sha256(''.join(marks).encode()).hexdigest()[:8]}"


def attempt_name() -> str:
    """A unique name of host, process and random digits."""
    return f"{this_host()}-{os.getpid()}-{secrets.token_hex(6)}"


def process_state(host: str, process: int) -> State:
    """Whether a process still runs; `unknown` for processes of other machines."""
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
    """Whether the process that started the attempt still runs."""
    host, _, rest = attempt.partition("-")
    process = rest.partition("-")[0]
    return process_state(host, int(process)) if process.isdigit() else "unknown"


def abandon(folder: Path) -> None:
    """Rename an attempt's folder so that the next attempt to write the artifact can take it over."""
    folder.rename(folder.with_name(f"{this_host()}-{ABANDONED}-{secrets.token_hex(6)}"))


def begin_attempt(folder: Path, purpose: str, *, resume: bool, published: Callable[[], str | None]) -> IO[str]:
    """Create the folder of an attempt; the result is its marker file, locked while it is open.

    With `resume`, take over the folder of a dead or abandoned attempt with the same purpose; the rename decides between
    several takers. The `published` attempt is never taken: its files are the artifact.
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
    """Rename an unowned attempt with the same purpose to `folder`; locked first, since its owner may still finish."""
    with suppress(OSError), ExitStack() as unless_taken:
        marker = unless_taken.enter_context((left / MARKER).open("r+"))
        if not _is_unowned(left, locked=_lock(marker)):
            return None
        if (left / MARKER).read_text() == purpose and left.name != published():
            left.rename(folder)
            unless_taken.pop_all()
            return marker
    return None


def _is_unowned(left: Path, *, locked: bool) -> bool:
    """Whether the owner has abandoned the attempt or is certainly dead.

    An owner from another boot or container is dead if its lock is free and the disk is local; on a network disk the
    owner may run on another machine, and the attempt is left alone.
    """
    if left.name.split("-")[1] == ABANDONED:
        return True
    state = owner_state(left.name)
    return state == "dead" or (state == "unknown" and locked and _is_own_disk(left))


def _lock(marker: IO[str]) -> bool:
    """Try to lock the marker; the lock ends with the process."""
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_own_disk(folder: Path) -> bool:
    """Whether only this machine can write there, so that all writers see each other's locks."""
    device = folder.stat().st_dev
    for line in MOUNTS.read_text().splitlines() if MOUNTS.is_file() else ():
        about, _, kind = line.partition(" - ")
        if about.split()[2] == f"{os.major(device)}:{os.minor(device)}":
            return kind.split()[0] in OWN_DISKS
    return False
