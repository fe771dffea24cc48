"""What formats with many images per file have in common: an index of records, and reads of ranges."""

# Shapes: R records.

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gif_core.images import ImageBlock, SourceFile, join
from gif_core.readers.base import Fault, LabelNumbers
from gif_core.readers.files import Blob, find_blobs, fingerprint

GAP = 64 * 1024
"""Records with fewer bytes than this between them are read together."""
SPAN = 8 * 2**20
"""Approximate limit of a single read, in bytes."""


@dataclass
class PackedListing:
    """Positions of all records' images, in compact growing arrays."""

    identities: LabelNumbers = field(default_factory=LabelNumbers)
    persons: "array[int]" = field(default_factory=lambda: array("i"))
    files: "array[int]" = field(default_factory=lambda: array("i"))
    keys: "array[int]" = field(default_factory=lambda: array("q"))
    starts: "array[int]" = field(default_factory=lambda: array("q"))
    lengths: "array[int]" = field(default_factory=lambda: array("q"))
    faults: list[Fault] = field(default_factory=list)

    def extend(
        self,
        labels: NDArray[np.int64],
        file: int,
        keys: NDArray[np.int64],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None:
        """Add many records of one file, with numeric labels."""
        found, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        numbers = np.empty(len(found), np.int32)
        for place in np.argsort(first).tolist():
            numbers[place] = self.identities.number(str(found[place]))
        self.persons.frombytes(numbers[inverse].tobytes())
        self.files.frombytes(np.full(len(labels), file, np.int32).tobytes())
        self.keys.frombytes(keys.astype(np.int64).tobytes())
        self.starts.frombytes(starts.astype(np.int64).tobytes())
        self.lengths.frombytes(lengths.astype(np.int64).tobytes())

    def add(self, label: str, file: int, key: int, start: int, length: int) -> None:
        """Add one record; `start` and `length` are those of the image's bytes."""
        self.persons.append(self.identities.number(label))
        self.files.append(file)
        self.keys.append(key)
        self.starts.append(start)
        self.lengths.append(length)

    @property
    def labels(self) -> list[str]:
        """Labels in the order of their first occurrence."""
        return self.identities.labels

    @property
    def person_R(self) -> NDArray[np.int32]:  # noqa: N802
        """Identity of each record, as an index into `labels`."""
        return np.frombuffer(self.persons, np.int32)

    @property
    def file_R(self) -> NDArray[np.int32]:  # noqa: N802
        """File of each record."""
        return np.frombuffer(self.files, np.int32)

    @property
    def key_R(self) -> NDArray[np.int64]:  # noqa: N802
        """The format's own key of each record."""
        return np.frombuffer(self.keys, np.int64)

    @cached_property
    def start_R(self) -> NDArray[np.int64]:  # noqa: N802
        """Position of each image in its file."""
        return np.frombuffer(self.starts, np.int64)

    @cached_property
    def size_R(self) -> NDArray[np.int64]:  # noqa: N802
        """The bytes of each image."""
        return np.frombuffer(self.lengths, np.int64)


class PackedReader:
    """Reads images by their positions, adjacent ones in a single read. Subclasses implement `list_file`."""

    kind: str
    ending: str
    what: str

    def __init__(self, address: str) -> None:
        """Find the files; they are scanned on first access to the listing."""
        self.blobs: list[Blob] = find_blobs(address, self.ending, self.what)
        self.in_any_order = all(blob.is_local for blob in self.blobs)
        self.threads = 1 if self.in_any_order else None
        """Cutting records out of a block holds the GIL: more threads help only where reads wait for a network."""

    @cached_property
    def files(self) -> list[SourceFile]:
        """The files of the source."""
        return [blob.describe() for blob in self.blobs]

    def describe(self) -> dict[str, Any]:
        """A fingerprint of names, sizes, and first and last bytes of all files."""
        return {"kind": self.kind, "fingerprint": fingerprint(self.files)}

    @cached_property
    def listing(self) -> PackedListing:
        """Scan all files once."""
        listing = PackedListing()
        for number, blob in enumerate(self.blobs):
            self.list_file(listing, number, blob)
        return listing

    def list_file(self, listing: PackedListing, number: int, blob: Blob) -> None:
        """Add the records of one file."""
        raise NotImplementedError

    def unpack(self, records: NDArray[np.int64], block: ImageBlock) -> ImageBlock:
        """The images in the records' bytes: the bytes themselves, unless a format overrides it."""
        return block

    def names(self, records: NDArray[np.int64]) -> list[str]:
        """File and key."""
        places = zip(self.listing.file_R[records].tolist(), self.listing.key_R[records].tolist(), strict=True)
        return [f"{self.blobs[file].name}#{key}" for file, key in places]

    def read(self, records: NDArray[np.int64]) -> Iterator[bytes]:
        """The images of these records, in the order given."""
        for block in self._read_spans(records):
            yield from map(bytes, block.images())

    def read_block(self, records: NDArray[np.int64]) -> ImageBlock:
        """The images of these records as one block."""
        return join(list(self._read_spans(records)))

    def _read_spans(self, records: NDArray[np.int64]) -> Iterator[ImageBlock]:
        """One block per read."""
        starts = self.listing.start_R[records]
        ends = starts + self.listing.size_R[records]
        for first, last in pairwise(_cut(self.listing.file_R[records], starts, ends)):
            blob, base = self.blobs[self.listing.files[int(records[first])]], int(starts[first])
            content = blob.read(base, int(ends[last - 1]))
            block = ImageBlock(content, starts[first:last] - base, ends[first:last] - base)
            yield self.unpack(records[first:last], block)


def _cut(files: NDArray[np.int32], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[int]:
    """Boundaries between reads: at gaps, and where a read would become too long."""
    distance = starts[1:] - ends[:-1]
    apart = np.ones(len(starts), bool)
    apart[1:] = (files[1:] != files[:-1]) | (distance < 0) | (distance > GAP)
    spans = (starts - starts[apart][np.cumsum(apart) - 1]) // SPAN
    apart[1:] |= spans[1:] != spans[:-1]
    return [*np.flatnonzero(apart).tolist(), len(starts)]
