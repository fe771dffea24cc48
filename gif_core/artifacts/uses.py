"""Which cached files are in use: each process keeps a list of them in a file that it locks while it runs.

Lists are read and written under the cache's lock. A lock ends with its process, and all containers of a machine see it.
"""

import atexit
import fcntl
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Final

from gif_core.artifacts.attempts import attempt_name

USES: Final = "uses"


def note_use(folder: Path, digest: str) -> None:
    """Record that this process uses the content with this digest."""
    notes, noted = _own_list(os.getpid(), folder)
    if not Path(notes.name).exists():
        _own_list.cache_clear()
        notes, noted = _own_list(os.getpid(), folder)
    if digest not in noted:
        notes.write(f"{digest}\n")
        notes.flush()
        noted.add(digest)


def in_use(folder: Path) -> set[str]:
    """Digests that running processes have recorded."""
    used: set[str] = set()
    for path in (folder / USES).glob("*"):
        with suppress(FileNotFoundError):
            used |= set(path.read_text().split()) if _is_held(path) else set()
    return used


def sweep_uses(folder: Path) -> None:
    """Remove the lists of dead processes."""
    for path in (folder / USES).glob("*"):
        if not _is_held(path):
            path.unlink(missing_ok=True)


@cache
def _own_list(process: int, folder: Path) -> tuple[IO[str], set[str]]:
    path = folder / USES / attempt_name()
    path.parent.mkdir(parents=True, exist_ok=True)
    notes = path.open("a")
    fcntl.flock(notes, fcntl.LOCK_EX)
    atexit.register(_end, process, notes)
    return notes, set()


def _end(process: int, notes: IO[str]) -> None:
    """Remove the list; a forked child inherits it, and only the process that created it removes it."""
    if os.getpid() == process:
        Path(notes.name).unlink(missing_ok=True)
    notes.close()


def _is_held(path: Path) -> bool:
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
