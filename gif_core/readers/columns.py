"""Reading one column of a Parquet or Arrow file in order, with bounds on the memory that a damaged file can claim."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from gif_core.images import LARGEST_IMAGE
from gif_core.readers.files import Blob, BlobFile
from schemas.errors import GifError

ARROW_FILE: Final = b"ARROW1"
BUFFER: Final = 8 * 2**20
"""Bytes of a Parquet column that are read at a time; without it pyarrow reads the whole column."""
MOST_FOLDED: Final = 100
"""Largest ratio of a decompressed row group to its file; images hardly compress."""


MOST_TIMES: Final = 4
"""The ratio above which a row group is read row by row: a dictionary holds a value once for any number of rows."""
FREE: Final = 2**20
"""Bytes of a row group that are never too many."""


class UnreadableTableError(GifError, ValueError):
    """A file is not a Parquet or Arrow file, is damaged, or lacks a column."""


def read_schema(blob: Blob) -> pa.Schema:
    """Names and types of the columns."""
    return _open_parquet(blob).schema_arrow if _is_parquet(blob) else _open_arrow(blob).schema


def read_column(blob: Blob, name: str, rows: int) -> Iterator[pa.Array]:
    """One column in order; Parquet is decoded in chunks of at most `rows`, Arrow in the batches of the file.

    Columns of text and bytes may come as dictionary arrays: whoever reads them unfolds one value at a time.
    """
    count, bound = 0, UnfoldingBound(blob.size)
    for chunk in _parquet_column(blob, name, rows) if _is_parquet(blob) else _arrow_column(blob, name):
        count += len(chunk)
        if count > blob.size:
            raise UnreadableTableError("it has more rows than bytes")
        bound.count(chunk.nbytes)
        yield chunk


class UnfoldingBound:
    """Limits the bytes that a file decodes to, by its size."""

    def __init__(self, size: int) -> None:
        """`size`: bytes of the file."""
        self.most = self.left = LARGEST_IMAGE + MOST_FOLDED * size

    def count(self, decoded: int) -> None:
        """Subtract decoded bytes; UnreadableTableError if there are too many."""
        self.left -= decoded
        if self.left < 0:
            raise UnreadableTableError(f"it unfolds to more than {self.most} bytes")


def read_batches(parquet: pq.ParquetFile, size: int, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of at most `rows` rows of a Parquet file of `size` bytes, with as few rows as its folding demands.

    A dictionary page holds a value once for any number of rows, so the sizes in the file's metadata bound a row, not a
    batch.
    """
    most = LARGEST_IMAGE + MOST_FOLDED * size
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        if group.total_byte_size > most:
            raise UnreadableTableError(f"row group {number} unfolds to {group.total_byte_size} bytes")
    for number in range(parquet.num_row_groups):
        is_folded = parquet.metadata.row_group(number).total_byte_size > FREE + MOST_TIMES * size
        yield from parquet.iter_batches(1 if is_folded else rows, [number], columns, use_threads=False)


def _is_parquet(blob: Blob) -> bool:
    return blob.path.endswith(".parquet")


def _open_parquet(blob: Blob, *folded: str) -> pq.ParquetFile:
    """Open a file; columns of text in `folded` are read as dictionary arrays."""
    return pq.ParquetFile(BlobFile(blob), buffer_size=BUFFER, pre_buffer=False, read_dictionary=list(folded))


def _parquet_column(blob: Blob, name: str, rows: int) -> Iterator[pa.Array]:
    """A column in chunks; text comes as dictionary arrays, unless its encoding has none."""
    schema, begun = _open_parquet(blob).schema_arrow, False
    _find_column(schema, name)
    if pa.types.is_string(schema.field(name).type):
        try:
            for batch in read_batches(_open_parquet(blob, name), blob.size, [name], rows):
                begun, folded = True, batch.column(name)
                folded.validate(full=True)  # pyarrow takes places from the file that its dictionary may not have
                yield folded
            return
        except (pa.ArrowNotImplementedError, OSError) as error:
            if begun or "Not yet implemented" not in str(error):
                raise
        rows = 1  # values with common beginnings are folded too
    for batch in read_batches(_open_parquet(blob), blob.size, [name], rows):
        yield batch.column(name)


def _open_arrow(blob: Blob, *columns: int) -> Any:
    """A reader of an Arrow file, or of a stream as Hugging Face saves them, with all or only some columns."""
    is_file = blob.read(0, len(ARROW_FILE)) == ARROW_FILE
    options = pa.ipc.IpcReadOptions(included_fields=list(columns))
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(BlobFile(blob), options=options)


def _arrow_column(blob: Blob, name: str) -> Iterator[pa.Array]:
    reader = _open_arrow(blob, _find_column(read_schema(blob), name))
    is_file = isinstance(reader, pa.ipc.RecordBatchFileReader)
    for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
        batch.validate(full=True)
        yield batch.column(name)


def _find_column(schema: pa.Schema, name: str) -> int:
    found: int = schema.get_field_index(name)
    if found < 0:
        raise UnreadableTableError(f"there is no single column {name!r}; it has: {', '.join(schema.names)}")
    return found


@contextmanager
def explained(blob: Blob) -> Iterator[None]:
    """Add the file's name to errors about it."""
    try:
        yield
    except UnreadableTableError as error:
        raise UnreadableTableError(f"{blob.name}: {error}") from None
    except (pa.ArrowException, MemoryError, UnicodeDecodeError) as error:
        raise UnreadableTableError(f"{blob.name} cannot be read, it is damaged or no table: {error}") from error
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:  # pyarrow's own are neither
            raise
        raise UnreadableTableError(f"{blob.name} cannot be read, it is damaged or no table: {error}") from error
