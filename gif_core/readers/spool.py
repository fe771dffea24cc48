"""A local copy of images that can only be read in order, for reading them identity by identity."""

# Shapes: S records in the spool.

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gif_core.images import BadImageError
from gif_core.readers.base import Content, Reader, ReaderAround

logger = logging.getLogger(__name__)

CHUNK = 1024
"""Records copied at a time."""


@contextmanager
def readable(reader: Reader, records: NDArray[np.int64], path: Path) -> Iterator[Reader]:
    """The reader itself if it reads the records quickly in this order, else a spool of them at `path`."""
    if reader.in_any_order or bool(np.all(np.diff(records) > 0)):
        yield reader
        return
    logger.info("the source is sequential and its identities are mixed: copying %d images first", len(records))
    with path.open("w+b", buffering=2**20) as file:
        try:
            yield Spool(reader, np.sort(records), file)
        finally:
            path.unlink()


class Spool(ReaderAround):
    """Copies of another reader's images in one local file."""

    threads: int | None = None
    in_any_order = True

    def __init__(self, reader: Reader, records_S: NDArray[np.int64], file: Any) -> None:
        """Copy these records, sorted in the order of the source."""
        super().__init__(reader)
        self.records_S, self.file = records_S, file
        self.bad: dict[int, str] = {}
        lengths_S = np.zeros(len(records_S), np.int64)
        for start in range(0, len(records_S), CHUNK):
            for place, content in enumerate(reader.read(records_S[start : start + CHUNK]), start=start):
                if isinstance(content, BadImageError):
                    self.bad[place] = str(content)
                else:
                    lengths_S[place] = file.write(content)
        file.flush()
        self.ends_S = np.cumsum(lengths_S)
        self.starts_S = self.ends_S - lengths_S

    def read(self, records: NDArray[np.int64]) -> Iterator[Content]:
        """The copies of these records."""
        for place in np.searchsorted(self.records_S, records).tolist():
            start, end = int(self.starts_S[place]), int(self.ends_S[place])
            if place in self.bad:
                yield BadImageError(self.bad[place])
            else:
                yield os.pread(self.file.fileno(), end - start, start)
