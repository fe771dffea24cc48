"""How glibc's allocator treats memory that is freed."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

TRIM_THRESHOLD: Final = -1
LARGEST_MAPPED: Final = -4
"""Parameters of `mallopt`: free bytes at the end of the heap that are kept, and how many blocks are mapped singly."""
DEFAULTS: Final = {TRIM_THRESHOLD: 128 * 1024, LARGEST_MAPPED: 65_536}
KEEP: Final = {TRIM_THRESHOLD: 2**31 - 1, LARGEST_MAPPED: 0}


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory for the next allocation, instead of giving it back to the kernel; nothing without glibc.

    A training step on a CPU frees and allocates the same hundreds of megabytes: their page faults are a seventh of it.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt"):
        yield
        return
    _set(library, KEEP)
    try:
        yield
    finally:
        _set(library, DEFAULTS)
        library.malloc_trim(0)


def _set(library: ctypes.CDLL, values: dict[int, int]) -> None:
    for parameter, value in values.items():
        library.mallopt(parameter, value)
