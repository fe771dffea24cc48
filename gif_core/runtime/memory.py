"""The most memory that this process and those it started have held together."""

import os
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """Looks every so often while it is open; `peak` is in bytes, None where the system does not tell (no /proc).

    Memory that processes share, such as mapped files, counts once in each of them.
    """

    def __init__(self, seconds: float = 0.5) -> None:
        """Validation every `seconds`."""
        self.peak: int | None = None
        self._seconds, self._closing = seconds, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="gif-memory")

    def __enter__(self) -> Self:
        """Begin to look."""
        if sys.platform == "linux":
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Validation once more and stop."""
        self._closing.set()
        if self._thread.ident:
            self._thread.join()

    def _look(self) -> None:
        while True:
            self.peak = max(self.peak or 0, memory_of_family(os.getpid()))
            if self._closing.wait(self._seconds):
                return


def memory_of_family(process: int) -> int:
    """Bytes in memory of a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    pages: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(after_name[1]), []).append(int(folder.name))
        pages[int(folder.name)] = int(after_name[21])
    family, found = [process], 0
    while family:
        member = family.pop()
        found += pages.get(member, 0)
        family += children.get(member, [])
    return found * PAGE
