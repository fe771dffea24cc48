"""What the formats that pack many images into one file have in common: an index, and reading by ranges."""

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
from gif_core.readers.base import Fault, Identities
from gif_core.readers.files import Blob, find_blobs, fingerprint

GAP = 64 * 1024
"""Records that are closer than this are fetched in one read."""
SPAN = 8 * 2**20
"""No read is much longer than this, however many records are asked for."""


@dataclass
class PackedListing:
    """Where every record's image lies, as compact arrays that grow."""

    identities: Identities = field(default_factory=Identities)
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
        """Take many records of one file, with numbers for labels."""
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
        """Take one record; `start` and `length` are those of the image's bytes."""
        self.persons.append(self.identities.number(label))
        self.files.append(file)
        self.keys.append(key)
        self.starts.append(start)
        self.lengths.append(length)

    @property
    def labels(self) -> list[str]:
        """The identities' names in the order in which they were met."""
        return self.identities.labels

    @property
    def person_R(self) -> NDArray[np.int32]:  # noqa: N802
        """The person on each record's image."""
        return np.frombuffer(self.persons, np.int32)

    @property
    def file_R(self) -> NDArray[np.int32]:  # noqa: N802
        """The file in which each record lies."""
        return np.frombuffer(self.files, np.int32)

    @property
    def key_R(self) -> NDArray[np.int64]:  # noqa: N802
        """What the format calls each record by."""
        return np.frombuffer(self.keys, np.int64)

    @cached_property
    def start_R(self) -> NDArray[np.int64]:  # noqa: N802
        """Where each image begins in its file."""
        return np.frombuffer(self.starts, np.int64)

    @cached_property
    def size_R(self) -> NDArray[np.int64]:  # noqa: N802
        """The bytes of each image."""
        return np.frombuffer(self.lengths, np.int64)


class PackedReader:
    """Reads the images of a listing; neighbours in a file come in one read. A format adds how it is listed."""

    kind: str
    ending: str
    what: str

    def __init__(self, address: str) -> None:
        """Find the files; they are looked through when the listing is first asked for."""
        self.blobs: list[Blob] = find_blobs(address, self.ending, self.what)
        self.in_any_order = all(blob.is_local for blob in self.blobs)
        self.threads = 1 if self.in_any_order else None
        """Cutting records out of a block is Python's work: more threads help only where reads are to be waited for."""

    @cached_property
    def files(self) -> list[SourceFile]:
        """The files of the source."""
        return [blob.describe() for blob in self.blobs]

    def describe(self) -> dict[str, Any]:
        """Names, sizes and the ends of all files."""
        return {"kind": self.kind, "fingerprint": fingerprint(self.files)}

    @cached_property
    def listing(self) -> PackedListing:
        """Validation through all files once."""
        listing = PackedListing()
        for number, blob in enumerate(self.blobs):
            self.list_file(listing, number, blob)
        return listing

    def list_file(self, listing: PackedListing, number: int, blob: Blob) -> None:
        """Add one file's records."""
        raise NotImplementedError

    def unpack(self, records: NDArray[np.int64], block: ImageBlock) -> ImageBlock:
        """The images within the records' bytes: all of them, unless the format says otherwise."""
        return block

    def names(self, records: NDArray[np.int64]) -> list[str]:
        """File and number."""
        places = zip(self.listing.file_R[records].tolist(), self.listing.key_R[records].tolist(), strict=True)
        return [f"{self.blobs[file].name}#{key}" for file, key in places]

    def read(self, records: NDArray[np.int64]) -> Iterator[bytes]:
        """The images of these records, in the order asked for."""
        for block in self._read_spans(records):
            yield from map(bytes, block.images())

    def read_block(self, records: NDArray[np.int64]) -> ImageBlock:
        """The same in one piece."""
        return join(list(self._read_spans(records)))

    def _read_spans(self, records: NDArray[np.int64]) -> Iterator[ImageBlock]:
        """One block for each read."""
        starts = self.listing.start_R[records]
        ends = starts + self.listing.size_R[records]
        for first, last in pairwise(_cut(self.listing.file_R[records], starts, ends)):
            blob, base = self.blobs[self.listing.files[int(records[first])]], int(starts[first])
            content = blob.read(base, int(ends[last - 1]))
            block = ImageBlock(content, starts[first:last] - base, ends[first:last] - base)
            yield self.unpack(records[first:last], block)


def _cut(files: NDArray[np.int32], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[int]:
    """Where one read ends and the next begins: at gaps, and where it gets too long."""
    distance = starts[1:] - ends[:-1]
    apart = np.ones(len(starts), bool)
    apart[1:] = (files[1:] != files[:-1]) | (distance < 0) | (distance > GAP)
    spans = (starts - starts[apart][np.cumsum(apart) - 1]) // SPAN
    apart[1:] |= spans[1:] != spans[:-1]
    return [*np.flatnonzero(apart).tolist(), len(starts)]
