"""One `gif up` in a folder at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from schemas.errors import GifError


@contextmanager
def hold_alone(path: Path) -> Iterator[IO[str]]:
    """Hold a lock file whose text names the holder; the system frees it when its holders are gone."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GifError(_describe_holder(path)) from None
        if not path.exists() or path.stat().st_ino != os.fstat(file.fileno()).st_ino:
            raise GifError(f"another gif up has just ended in {path.parent}: try again")
        try:
            yield file
        finally:
            path.unlink()


def sign_lock(file: IO[str], text: str) -> None:
    """Write down who holds the lock."""
    file.truncate(0)
    file.write(f"{os.getpid()} {text}")
    file.flush()


def _describe_holder(path: Path) -> str:
    process, _, text = path.read_text().partition(" ")
    if process.isdigit() and not Path(f"/proc/{process}").exists() and Path("/proc").exists():
        return f"processes of a killed gif up in {path.parent} are still being ended: try again in 30 seconds"
    return f"gif up is already running in {path.parent}, as process {process or '?'}: {text or 'it is starting'}"
