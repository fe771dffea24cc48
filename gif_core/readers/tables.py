"""Reading Parquet and Arrow files with a column of images, as Hugging Face writes them.

Rows are fast to read only in order, so the reader continues where it stopped; a table with mixed identities is copied
to a spool first.
"""

# Shapes: R records.

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gif_core.images import LARGEST_IMAGE, BadImageError, SourceFile
from gif_core.readers.base import Content, Fault, LabelNumbers, is_label
from gif_core.readers.columns import UnfoldingBound, UnreadableTableError, explained, read_column, read_schema
from gif_core.readers.files import Blob, find_blobs, fingerprint
from schemas.ingestion import TableSource

ROWS = 8
"""Rows of images decoded from Parquet at a time: as fast as more, and each may be as large as an image can be."""
LABELS = 2**16
"""Rows of labels decoded at a time."""


@dataclass
class TableListing:
    """File and row of every record with a label."""

    identities: LabelNumbers = field(default_factory=LabelNumbers)
    persons: list[NDArray[np.int32]] = field(default_factory=list)
    files: list[NDArray[np.int32]] = field(default_factory=list)
    rows: list[NDArray[np.int64]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    bytes_by_row: float = 0.0
    """Mean bytes of a row over all files."""

    @property
    def labels(self) -> list[str]:
        """Labels in the order of their first occurrence."""
        return self.identities.labels

    @cached_property
    def person_R(self) -> NDArray[np.int32]:  # noqa: N802
        """Identity of each record, as an index into `labels`."""
        return np.concatenate([np.empty(0, np.int32), *self.persons])

    @cached_property
    def file_R(self) -> NDArray[np.int32]:  # noqa: N802
        """File of each record."""
        return np.concatenate([np.empty(0, np.int32), *self.files])

    @property
    def size_R(self) -> NDArray[np.int64]:  # noqa: N802
        """The mean bytes of a row."""
        return np.full(len(self.person_R), self.bytes_by_row, np.int64)

    @cached_property
    def row_R(self) -> NDArray[np.int64]:  # noqa: N802
        """Row of each record in its file."""
        return np.concatenate([np.empty(0, np.int64), *self.rows])


class TableReader:
    """Reads Parquet or Arrow files; a single thread reads them in order."""

    threads: int | None = 1
    in_any_order = False

    def __init__(self, source: TableSource) -> None:
        """Find the files; labels are read on first access to the listing."""
        self.source = source
        self.blobs = find_blobs(source.path, f".{source.kind}", f"{source.kind.capitalize()} files")
        self.cursor: Iterator[tuple[int, Content]] = iter(())
        self.place = (-1, -1)

    @cached_property
    def files(self) -> list[SourceFile]:
        """The files of the source."""
        return [blob.describe() for blob in self.blobs]

    def describe(self) -> dict[str, Any]:
        """A fingerprint of all files, and the names of the columns."""
        settings = self.source.model_dump(mode="json", exclude={"path", "detect"})
        return settings | {"fingerprint": fingerprint(self.files)}

    @cached_property
    def listing(self) -> TableListing:
        """Read the labels of all files."""
        listing = TableListing()
        for number, blob in enumerate(self.blobs):
            with explained(blob):
                row, text = 0, _label_text(_class_names(read_schema(blob), self.source.label))
                for labels in read_column(blob, self.source.label, LABELS):
                    self._add(listing, number, row, labels, text)
                    row += len(labels)
        listing.bytes_by_row = sum(blob.size for blob in self.blobs) / max(len(listing.person_R), 1)
        return listing

    def _add(
        self, listing: TableListing, file: int, first: int, labels: pa.Array, text: Callable[[pa.Scalar], str]
    ) -> None:
        encoded = labels if pa.types.is_dictionary(labels.type) else labels.dictionary_encode()
        places = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        used, seen = np.unique(places, return_index=True)
        lookup = np.full(len(encoded.dictionary) + 1, -1, np.int32)
        for place in used[np.argsort(seen)].tolist():
            label = text(encoded.dictionary[place]) if place >= 0 and encoded.dictionary[place].is_valid else ""
            lookup[place] = listing.identities.number(label) if is_label(label) else -1
        person = lookup[places]
        rows = first + np.flatnonzero(person >= 0)
        listing.persons.append(person[person >= 0])
        listing.files.append(np.full(len(rows), file, np.int32))
        listing.rows.append(rows.astype(np.int64))
        for row in (first + np.flatnonzero(person < 0)).tolist():
            listing.faults.append(Fault(f"{self.blobs[file].name}#{row}", "no label"))

    def names(self, records: NDArray[np.int64]) -> list[str]:
        """File and row."""
        files, rows = self.listing.file_R[records].tolist(), self.listing.row_R[records].tolist()
        return [f"{self.blobs[file].name}#{row}" for file, row in zip(files, rows, strict=True)]

    def read(self, records: NDArray[np.int64]) -> Iterator[Content]:
        """The images of these records; fast if they ascend, within a call and from call to call."""
        files, rows = self.listing.file_R[records].tolist(), self.listing.row_R[records].tolist()
        for file, row in zip(files, rows, strict=True):
            yield self._image(file, row)

    def _image(self, file: int, row: int) -> Content:
        if self.place[0] != file or self.place[1] >= row:
            self.cursor = _images(self.blobs[file], self.source.image)
        with explained(self.blobs[file]):
            for found, image in self.cursor:
                if found == row:
                    self.place = (file, row)
                    return image
            raise UnreadableTableError(f"it ended before row {row}: has it changed?")


def _images(blob: Blob, column: str) -> Iterator[tuple[int, Content]]:
    """All rows of a file in order, decoded in small chunks."""
    row, bound = 0, UnfoldingBound(blob.size)
    for chunk in read_column(blob, column, ROWS):
        for value in _image_bytes(chunk, column):
            content = _content(value.as_py())
            bound.count(len(content) if isinstance(content, bytes) else 0)
            yield row, content
            row += 1


def _content(image: bytes | None) -> Content:
    if image is None:
        return BadImageError("empty: the row has no image bytes")
    return image if len(image) <= LARGEST_IMAGE else BadImageError(f"too large: an image of {len(image)} bytes")


def _image_bytes(chunk: pa.Array, column: str) -> pa.Array:
    """The bytes in a column of images."""
    if pa.types.is_struct(chunk.type) and chunk.type.get_field_index("bytes") >= 0:
        chunk = pc.struct_field(chunk, "bytes")
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    stored = chunk.type.value_type if pa.types.is_dictionary(chunk.type) else chunk.type
    if not any(is_kind(stored) for is_kind in kinds):
        raise UnreadableTableError(f"column {column!r} holds {stored}, not images as bytes or {{bytes, path}}")
    return chunk


def _class_names(schema: pa.Schema, label: str) -> list[str] | None:
    """Names of the labels, if the table stores numbers and Hugging Face's metadata names them."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def _label_text(names: list[str] | None) -> Callable[[pa.Scalar], str]:
    """A function from a label to its text; empty for negative numbers, and for numbers without a name."""

    def text(value: pa.Scalar) -> str:
        label = value.as_py()
        if not isinstance(label, str | int):
            raise UnreadableTableError(f"labels must be numbers or text, found {value.type}")
        if isinstance(label, str):
            return label
        if names is None:
            return str(label) if label >= 0 else ""
        return names[label] if 0 <= label < len(names) else ""

    return text
