"""Pairs in a Parquet table, with the images in the same file or in another."""

# Shapes: P pairs.

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gif_core.protocols.pairs import Pairs
from gif_core.protocols.sets.files import EvaluationFileError, EvaluationFiles
from gif_core.protocols.sets.pair_set import EncodedImages, PairSet
from gif_core.readers import UnfoldingBound, UnreadableTableError, read_batches
from schemas.evaluation import PairTableSet

SIDES: Final = ("left", "right")
ROWS: Final = 64
"""Rows decoded at a time."""


def read_pair_table(given: PairTableSet) -> PairSet:
    """Read pairs from a Parquet file, whose images are in the same file or in another."""
    table = _read_table(given.path, ["left", "right", "same"])
    if not pa.types.is_boolean(table["same"].type):
        raise EvaluationFileError(f"{given.path}: column 'same' must hold true and false, not {table['same'].type}")
    same_P = table["same"].to_numpy()
    if given.images:
        images = _images(_read_table(given.images, ["image"])["image"], f"{given.images}, column 'image'")
        left_P, right_P = (_row_numbers(table[name], f"{given.path}, column {name!r}", len(images)) for name in SIDES)
        return PairSet(EncodedImages(given.images, images), Pairs(left_P, right_P, same_P))
    images = [image for name in SIDES for image in _images(table[name], f"{given.path}, column {name!r}")]
    left_P = np.arange(len(same_P))
    return PairSet(EncodedImages(given.path, images), Pairs(left_P, left_P + len(left_P), same_P))


def _read_table(address: str, columns: list[str]) -> Any:
    content = EvaluationFiles(address).read()
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        missing = [name for name in columns if name not in file.schema_arrow.names]
        if missing:
            raise EvaluationFileError(
                f"{address} has no column {missing[0]!r}; its columns are {', '.join(file.schema_arrow.names)}"
            )
        table = _read_bounded(file, len(content), columns)
    except (pa.ArrowException, OSError, UnreadableTableError) as error:
        raise EvaluationFileError(f"{address} is not a readable Parquet file: {error}") from None
    for name in columns:
        if table[name].null_count:
            row = int(np.flatnonzero(table[name].is_null().to_numpy())[0])
            raise EvaluationFileError(f"{address}, row {row}, column {name!r}: the value is missing")
    return table


def _read_bounded(file: pq.ParquetFile, size: int, columns: list[str]) -> pa.Table:
    """Read the columns, unless they unfold to far more than the file."""
    bound, batches = UnfoldingBound(size), []
    for batch in read_batches(file, size, columns, ROWS):
        bound.count(batch.nbytes)
        batches.append(batch)
    schema = pa.schema([file.schema_arrow.field(name) for name in columns])
    return pa.Table.from_batches(batches, None if batches else schema)


def _images(column: Any, where: str) -> list[bytes]:
    """Return encoded images from a column of bytes or of Hugging Face's image structs."""
    kind = column.type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        images = [each["bytes"] for each in column.to_pylist()]
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        images = column.to_pylist()
    else:
        raise EvaluationFileError(f"{where}: images are bytes, or a struct with the field 'bytes', not {kind}")
    for row, image in enumerate(images):
        if not image:
            raise EvaluationFileError(f"{where}, row {row}: the image is empty")
    return images


def _row_numbers(column: Any, where: str, rows: int) -> NDArray[np.int64]:
    if not pa.types.is_integer(column.type):
        raise EvaluationFileError(f"{where}: must hold row numbers of the images, not {column.type}")
    numbers_P: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    outside = np.flatnonzero((numbers_P < 0) | (numbers_P >= rows))
    if len(outside):
        raise EvaluationFileError(f"{where}, row {outside[0]}: there is no image {numbers_P[outside[0]]} among {rows}")
    return numbers_P
