"""Reading MXNet RecordIO without mxnet: `train.rec`, with or without `train.idx` and `property`.

In insightface's layout record 0, and one record per identity after the images, have two labels and no image. Files of
im2rec contain only images.
"""

# Shapes: K records of one file.

import logging
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from gif_core.images import ImageBlock, SourceFile, gather
from gif_core.readers.base import Fault
from gif_core.readers.files import Blob
from gif_core.readers.packed import PackedListing, PackedReader
from gif_core.readers.recordio_framing import DATA, Damage, Records, join_parts
from gif_core.readers.recordio_scan import find_records
from schemas.ingestion import RecordIOSource

logger = logging.getLogger(__name__)

LARGEST_LABEL: Final = 2**24
"""Labels are float32: beyond this, adjacent integers are not distinct."""


@dataclass(frozen=True)
class Index:
    """Keys and offsets of an `.idx` file, sorted by offset."""

    keys: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def keys_at(self, start_K: NDArray[np.int64]) -> NDArray[np.int64]:
        """The key of the record at each position, or -1 if the index has none."""
        places = np.minimum(np.searchsorted(self.offsets, start_K), len(self.offsets) - 1)
        return np.where(self.offsets[places] == start_K, self.keys[places], -1)

    def without(self, start_K: NDArray[np.int64]) -> "Index":
        """The entries that point to none of these positions."""
        missing = np.append(start_K, -1)[np.searchsorted(start_K, self.offsets)] != self.offsets
        return Index(self.keys[missing], self.offsets[missing])


class RecordIOReader(PackedReader):
    """Reads `.rec` files; equal labels in several files are the same identity."""

    kind, ending, what = "recordio", ".rec", "RecordIO files"

    def __init__(self, source: RecordIOSource) -> None:
        """Find the files; they are scanned on first access to the listing."""
        super().__init__(source.path)
        self.indices = [blob.beside(f"{blob.path.removesuffix('.rec')}.idx") for blob in self.blobs]
        self.split: set[int] = set()

    @cached_property
    def files(self) -> list[SourceFile]:
        """The `.rec` files, followed by their `.idx` files, which decide which records count."""
        return [blob.describe() for blob in (*self.blobs, *self.indices) if blob]

    def list_file(self, listing: PackedListing, number: int, blob: Blob) -> None:
        """Scan the records. Keys come from the `.idx`; without one, records are numbered."""
        found, damages = find_records(blob)
        index = self._fitting_index(number, found, damages)
        listing.faults += _lost_keys(blob, damages, index.without(found.start_K)) if index else _lost(blob, damages)
        key_K = index.keys_at(found.start_K) if index else np.arange(len(found.start_K))
        image_K = key_K >= 0
        if found.bare_K[key_K == 0].any():
            image_K &= ~found.bare_K
        self._add(listing, number, key_K[image_K], found.where(image_K))
        if len(self.blobs) == 1:
            _compare_property(blob, listing)

    def _fitting_index(self, number: int, found: Records, damages: list[Damage]) -> Index | None:
        """The file's index, or None if it does not match the file."""
        index = _read_index(blob) if (blob := self.indices[number]) else None
        if index is None:
            return None
        name, missing = self.blobs[number].name, index.without(found.start_K)
        if not all(_reasons(damages, missing.offsets, self.blobs[number].size)):
            logger.warning("ignoring the .idx of %s: its offsets do not match the file", name)
            return None
        extra = int((index.keys_at(found.start_K) < 0).sum())
        if extra:
            logger.warning("%d records of %s are left out because its .idx does not list them", extra, name)
        return index

    def _add(self, listing: PackedListing, number: int, key_K: NDArray[np.int64], found: Records) -> None:
        label_K = found.label_K.astype(np.float64)
        person_K = np.isfinite(label_K) & (label_K == np.floor(label_K)) & (label_K >= 0) & (label_K <= LARGEST_LABEL)
        for key, label in zip(key_K[~person_K].tolist(), label_K[~person_K].tolist(), strict=True):
            listing.faults.append(Fault(f"{self.blobs[number].name}#{key}", _label_fault(label)))
        good = found.where(person_K)
        self.split |= set((len(listing.persons) + np.flatnonzero(good.split_K)).tolist())
        skip_K = np.where(good.split_K, 0, 8 + DATA + 4 * good.flag_K).astype(np.int64)
        labels = label_K[person_K].astype(np.int64)
        listing.extend(labels, number, key_K[person_K], good.start_K + skip_K, good.size_K - skip_K)

    def unpack(self, records: NDArray[np.int64], block: ImageBlock) -> ImageBlock:
        """Join the parts of split records."""
        if self.split.isdisjoint(records.tolist()):
            return block
        pairs = zip(records.tolist(), map(bytes, block.images()), strict=True)
        return gather(_without_labels(content) if record in self.split else content for record, content in pairs)


def _reasons(damages: list[Damage], offsets: NDArray[np.int64], size: int) -> list[str]:
    """Why there is no record at each offset: the damage that covers it, or the end of the file; empty if neither."""
    stretches = [*damages, Damage(size, sys.maxsize, "truncated: the file ends before this record")]
    places = np.searchsorted([stretch.start for stretch in stretches], offsets, side="right") - 1
    chosen = zip((stretches[place] for place in places.tolist()), offsets.tolist(), strict=True)
    return [reason if start <= offset < end else "" for (start, end, reason), offset in chosen]


def _without_labels(content: bytes) -> bytes:
    """The image of a split record."""
    data = join_parts(content)
    return data[DATA + 4 * int.from_bytes(data[:4], "little") :]


def _lost(blob: Blob, damages: list[Damage]) -> Iterator[Fault]:
    for start, end, reason in damages:
        yield Fault(f"{blob.name}@{start}", f"{reason} ({end - start} bytes are lost)")


def _lost_keys(blob: Blob, damages: list[Damage], missing: Index) -> Iterator[Fault]:
    for key, reason in zip(missing.keys.tolist(), _reasons(damages, missing.offsets, blob.size), strict=True):
        yield Fault(f"{blob.name}#{key}", reason)


def _label_fault(label: float) -> str:
    if label > LARGEST_LABEL and math.isfinite(label):
        return f"its label {label:.0f} is beyond {LARGEST_LABEL}, up to which the format tells all identities apart"
    return f"its label {label:g} is not the number of a person"


def _read_index(blob: Blob) -> Index | None:
    """The `.idx` file, if it can be read."""
    options = csv.ReadOptions(column_names=["key", "offset"])
    types = csv.ConvertOptions(column_types={"key": pa.int64(), "offset": pa.int64()}, null_values=[])
    content = pa.BufferReader(blob.read(0, blob.size))
    try:
        table = csv.read_csv(content, options, csv.ParseOptions(delimiter="\t"), types).sort_by("offset")
    except pa.ArrowException as error:
        logger.warning("ignoring %s, which cannot be read; records are found by a scan: %s", blob.name, error)
        return None
    return Index(table["key"].to_numpy(), table["offset"].to_numpy()) if len(table) else None


def _compare_property(blob: Blob, listing: PackedListing) -> None:
    """Warn if the dataset's own number of identities differs from what was found."""
    about = blob.beside(f"{blob.path.rpartition('/')[0]}/property")
    if about is None:
        return
    first = about.read(0, 100).split(b",")[0].strip()
    if not first.isdigit() or int(first) != len(listing.labels):
        count = first.decode(errors="replace")
        logger.warning("%s says %s identities, %s has %d", about.name, count, blob.name, len(listing.labels))
