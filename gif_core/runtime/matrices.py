"""A matrix in a safetensors file that is mapped into memory: written and read a part at a time, by many processes."""

import json
import mmap
import struct
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

_HEADER_BYTES = 8
"""A safetensors file: the length of a header, the header in JSON, and the tensors one after the other."""

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


def map_tensor(path: Path, name: str, *, scattered: bool = False) -> NDArray[np.float32]:
    """A 32-bit float tensor of a safetensors file, read-only, of which only what is used is read.

    `scattered`: rows are asked for here and there, so the system shall not read their neighbours as well.
    """
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(_HEADER_BYTES), "little")
        about = json.loads(file.read(header_bytes))[name]
    if about["dtype"] != "F32":
        raise ValueError(f"{name} in {path} is {about['dtype']} where F32 is expected")
    offset = _HEADER_BYTES + header_bytes + about["data_offsets"][0]
    if 0 in about["shape"]:
        return np.zeros(about["shape"], dtype=np.float32)
    mapped: np.memmap[Any, np.dtype[np.float32]] = np.memmap(path, np.float32, "r", offset, tuple(about["shape"]))
    return expect_scattered(mapped) if scattered else mapped


def expect_scattered(mapped: np.memmap[Any, np.dtype[Any]]) -> np.memmap[Any, np.dtype[Any]]:
    """Tell the system that rows of a mapped file are asked for here and there, where it wants to know."""
    if hasattr(mmap, "MADV_RANDOM"):
        cast(mmap.mmap, mapped._mmap).madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    return mapped
