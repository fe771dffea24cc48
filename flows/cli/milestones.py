"""A line for each stage and epoch of a run; where bars show those, for each of a run beside it."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gif_core.runtime import milestones, milestones_beside, printable


class _Lines(logging.Handler):
    """Print milestones on standard output."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stdout.write(f"{printable(self.format(record))}\n")
        sys.stdout.flush()


@contextmanager
def milestones_printed() -> Iterator[None]:
    """Print milestones while the block runs, in a log with the time of day.

    On a terminal only those of a run beside the one that has bars: a bar shows above itself what is printed meanwhile.
    """
    logger, handler = milestones, _Lines()
    if sys.stdout.isatty():
        logger = milestones_beside
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
