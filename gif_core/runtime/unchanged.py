"""Answers about a file that are computed once per process, and again when the file has changed."""

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

P = ParamSpec("P")
Answer = TypeVar("Answer")
SETTLED_NS: Final = 2 * 10**9
"""A file changed more recently is not remembered: another change could come within one tick of the disk's clock."""


def once_per_file(
    compute: Callable[Concatenate[Path, P], Answer],
) -> Callable[Concatenate[Path, P], Answer]:
    """The function with a memory: it runs again only for a file of another size, time or place on the disk."""
    known: dict[object, Answer] = {}

    @wraps(compute)
    def remembered(path: Path, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        status = path.stat()
        state = (path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, args)
        if state in known:
            return known[state]
        answer = compute(path, *args, **kwargs)
        if time.time_ns() - status.st_mtime_ns > SETTLED_NS:
            known[state] = answer
        return answer

    return remembered
