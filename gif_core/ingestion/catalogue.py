"""All records and identities of all sources under one numbering, and reading them ahead in any order."""

# Shapes: R records of all sources, P identities of all sources.

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gif_core.images import ImageBlock, gather
from gif_core.readers import PackedReader, Reader, readable
from gif_core.runtime import prefetch

logger = logging.getLogger(__name__)

UNIT_BYTES = 4 * 2**20
UNIT_RECORDS = 1024
"""Limits of a unit of work."""
AHEAD = 2
"""Units that are read ahead, besides one per worker."""

Check = Callable[[ImageBlock], dict[int, str]]
"""Checks a block: reasons why images cannot be used, by position."""


class Refused(NamedTuple):
    """A row of the quarantine."""

    source: int
    record: str
    reason: str


class Unit(NamedTuple):
    """A unit of work: adjacent records with their names and images."""

    records: NDArray[np.int64]
    names: list[str]
    images: list[memoryview]
    bad: dict[int, str]
    """Reasons why images cannot be used, by position."""


class Catalogue:
    """The identities of all sources, numbered consecutively; sources never share an identity."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        """List all sources."""
        self.readers = list(readers)
        listings = [reader.listing for reader in readers]
        first_P = np.cumsum([0] + [len(listing.labels) for listing in listings])
        self.starts: list[int] = np.cumsum([0] + [len(listing.person_R) for listing in listings]).tolist()
        self.labels = [label for listing in listings for label in listing.labels]
        self.source_P = np.repeat(np.arange(len(listings), dtype=np.int32), np.diff(first_P))
        self.person_R = np.concatenate(
            [listing.person_R + np.int32(first) for listing, first in zip(listings, first_P[:-1], strict=True)]
        )
        for source, listing in enumerate(listings):
            images, identities = len(listing.person_R), len(listing.labels)
            logger.info(
                "source %d: %d images of %d identities, %d rejected", source, images, identities, len(listing.faults)
            )
        self.refused = [Refused(source, *fault) for source, listing in enumerate(listings) for fault in listing.faults]
        self.dropped_R = np.zeros(len(self.person_R), bool)
        self.dropped: list[Refused] = []
        """Records that lists of wrong labels leave out."""

    @property
    def counts_P(self) -> NDArray[np.int64]:  # noqa: N802
        """Records of each identity that are not left out."""
        return np.bincount(self.person_R[~self.dropped_R], minlength=len(self.labels))

    def add_identity(self, source: int, label: str) -> int:
        """Number a label that the source itself does not have."""
        self.labels.append(label)
        self.source_P = np.append(self.source_P, np.int32(source))
        return len(self.labels) - 1

    def names(self, records: NDArray[np.int64]) -> Iterator[tuple[int, str]]:
        """The source and the name there of ascending records."""
        for source, some in self._by_source(records):
            for start in range(0, len(some), UNIT_RECORDS):
                part = some[start : start + UNIT_RECORDS] - self.starts[source]
                yield from ((source, name) for name in self.readers[source].names(part))

    def place(self, record: int) -> tuple[int, str]:
        """The source of a record, and its name there."""
        source = bisect_right(self.starts, record) - 1
        return source, self.readers[source].names(np.array([record - self.starts[source]]))[0]

    def refuse(self, record: int, reason: str) -> Refused:
        """A record as a row of the quarantine."""
        return Refused(*self.place(record), reason)

    def by_person(self, identities: NDArray[np.bool_], wanted_R: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The wanted records of these identities, sorted by identity, keeping the order of the source."""
        records = np.flatnonzero(identities[self.person_R] & wanted_R)
        return records[np.argsort(self.person_R[records], kind="stable")]

    def read_ahead(self, records: NDArray[np.int64], check: Check, workers: int, spool: Path) -> Iterator[Unit]:
        """Read and check records in this order, in units that threads read ahead."""
        for source, some in self._by_source(records):
            first = self.starts[source]
            with readable(self.readers[source], some - first, spool) as reader:
                threads = min(workers, reader.threads or workers)
                units = _units(some - first, reader.listing.size_R)
                work = partial(_read_unit, reader, check, first)
                yield from prefetch(work, units, depth=threads + AHEAD, workers=threads)

    def _by_source(self, records: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The records, cut where the source changes; identities are numbered source by source."""
        sources = np.searchsorted(self.starts, records, side="right") - 1
        cuts = [0, *(np.flatnonzero(np.diff(sources)) + 1).tolist(), len(records)]
        for start, end in pairwise(cuts):
            if end > start:
                yield int(sources[start]), records[start:end]


def _units(records: NDArray[np.int64], size_R: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cut records into units of a few megabytes."""
    start = 0
    while start < len(records):
        some = records[start : start + UNIT_RECORDS]
        fitting = int(np.searchsorted(np.cumsum(size_R[some]), UNIT_BYTES)) + 1
        yield some[:fitting]
        start += len(some[:fitting])


def _read_unit(reader: Reader, check: Check, first: int, records: NDArray[np.int64]) -> Unit:
    block = reader.read_block(records) if isinstance(reader, PackedReader) else gather(reader.read(records))
    return Unit(records + first, reader.names(records), block.images(), check(block))
