"""A matrix in a safetensors file that is mapped into memory: written and read a part at a time, by many processes."""

import json
import struct
from pathlib import Path
from typing import Any, Final

import numpy as np

ALIGNMENT: Final = 64
Matrix = np.memmap[Any, np.dtype[np.float32]]


def create_matrix(path: Path, name: str, rows: int, columns: int) -> Matrix:
    """A new file with one float32 matrix of zeros, mapped; what is written to the array is written to the file."""
    size = 4 * rows * columns
    entry = {name: {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, size]}}
    header = json.dumps(entry, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    return map_matrix(path, name, writable=True)


def map_matrix(path: Path, name: str, *, writable: bool = False) -> Matrix:
    """The matrix of a file; rows are read from the disk when they are looked at."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(length))[name]
    rows, columns = entry["shape"]
    if entry["dtype"] != "F32" or path.stat().st_size != 8 + length + 4 * rows * columns:
        raise ValueError(f"{path} does not hold one whole float32 matrix named {name}")
    matrix: Matrix = np.memmap(
        path, np.dtype(np.float32), "r+" if writable else "c", offset=8 + length, shape=(rows, columns)
    )
    return matrix
