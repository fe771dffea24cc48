"""Peak memory of this process and its descendants."""

import os
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """Samples the resident memory while it is open; `peak` is in bytes, or None on systems without /proc.

    Memory that processes share, such as mapped files, counts once per process.
    """

    def __init__(self, seconds: float = 0.5) -> None:
        """Sample every `seconds`."""
        self.peak: int | None = None
        self._seconds, self._closing = seconds, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="gif-memory")

    def __enter__(self) -> Self:
        """Start sampling."""
        if sys.platform == "linux":
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take a last sample and stop."""
        self._closing.set()
        if self._thread.ident:
            self._thread.join()

    def _sample(self) -> None:
        while True:
            self.peak = max(self.peak or 0, memory_of_tree(os.getpid()))
            if self._closing.wait(self._seconds):
                return


def memory_of_tree(process: int) -> int:
    """Resident memory in bytes of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    pages: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(after_name[1]), []).append(int(folder.name))
        pages[int(folder.name)] = int(after_name[21])
    waiting, found = [process], 0
    while waiting:
        member = waiting.pop()
        found += pages.get(member, 0)
        waiting += children.get(member, [])
    return found * PAGE
