"""A line for each stage and epoch of a run, where standard output is a file or a pipe and shows no bars."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gif_core.runtime import milestones, printable


class _Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """Print milestones on standard output, with the time of day."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


@contextmanager
def milestones_printed() -> Iterator[None]:
    """Print milestones while the block runs, unless standard output is a terminal."""
    handler = None if sys.stdout.isatty() else _Lines()
    if handler:
        milestones.addHandler(handler)
    try:
        yield
    finally:
        if handler:
            milestones.removeHandler(handler)
