"""Peak memory of this process and its descendants."""

import os
import sys
from pathlib import Path
from typing import Final

from gif_core.runtime.sampling import Sampling

PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class MemoryWatch(Sampling):
    """Samples the resident memory while it is open; `peak` is in bytes, or None on systems without /proc.

    Memory that processes share, such as mapped files, counts once per process.
    """

    def __init__(self, seconds: float = 0.5) -> None:
        """Sample every `seconds`."""
        self.peak: int | None = None
        super().__init__(seconds, "gif-memory")

    def begin(self) -> bool:
        """Sample at once where there is /proc."""
        if sys.platform == "linux":
            self.sample()
        return sys.platform == "linux"

    def sample(self) -> None:
        """Raise the peak to what is in use now, if that is more."""
        self.peak = max(self.peak or 0, memory_of_tree(os.getpid()))


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
