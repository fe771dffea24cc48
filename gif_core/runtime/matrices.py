"""Memory-mapped float32 tensors in safetensors files, read and written in parts, by any number of processes.

A safetensors file is the length of a header (8 bytes), the header as JSON, and the tensors one after the other.
"""

import json
import mmap
import os
import struct
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

LENGTH_BYTES: Final = 8
ALIGNMENT: Final = 64
Matrix = np.memmap[Any, np.dtype[np.float32]]


def create_matrix(path: Path, name: str, rows: int, columns: int) -> Matrix:
    """Create a file with one float32 matrix of zeros, and map it for writing."""
    size = 4 * rows * columns
    entry = {name: {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, size]}}
    header = json.dumps(entry, separators=(",", ":")).encode()
    header += b" " * (-(LENGTH_BYTES + len(header)) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.flush()
        _reserve(file, LENGTH_BYTES + len(header) + size)
    return map_matrix(path, name, writable=True)


def _reserve(file: IO[bytes], size: int) -> None:
    """Extend a file with zeros that have their room on the disk: a mapped page without it would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    file.truncate(size)


def map_matrix(path: Path, name: str, *, writable: bool = False) -> Matrix:
    """Map the only matrix of a file, whose size is checked; with `writable`, changes go to the file.

    Without it the mapping is copy-on-write, which torch accepts where it refuses read-only arrays.
    """
    shape, offset = _find_tensor(path, name)
    rows, columns = shape
    if path.stat().st_size != offset + 4 * rows * columns:
        raise ValueError(f"{path} does not hold one whole float32 matrix named {name}")
    return np.memmap(path, np.dtype(np.float32), "r+" if writable else "c", offset=offset, shape=(rows, columns))


def map_tensor(path: Path, name: str, *, scattered: bool = False) -> NDArray[np.float32]:
    """Map any float32 tensor of a file, read-only; pages are read from the disk on first access.

    `scattered`: rows are accessed at random, so disable the kernel's read-ahead.
    """
    shape, offset = _find_tensor(path, name)
    if 0 in shape:
        return np.zeros(shape, dtype=np.float32)
    mapped: np.memmap[Any, np.dtype[np.float32]] = np.memmap(path, np.float32, "r", offset, shape)
    return expect_scattered(mapped) if scattered else mapped


def _find_tensor(path: Path, name: str) -> tuple[tuple[int, ...], int]:
    """Shape of a float32 tensor, and where it begins in the file."""
    with path.open("rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(LENGTH_BYTES))
        entry = json.loads(file.read(header_bytes))[name]
    if entry["dtype"] != "F32":
        raise ValueError(f"{name} in {path} is {entry['dtype']} where F32 is expected")
    return tuple(entry["shape"]), LENGTH_BYTES + header_bytes + entry["data_offsets"][0]


def expect_scattered(mapped: np.memmap[Any, np.dtype[Any]]) -> np.memmap[Any, np.dtype[Any]]:
    """Disable the kernel's read-ahead for a mapped file (MADV_RANDOM), where the system supports it."""
    if hasattr(mmap, "MADV_RANDOM"):
        cast(mmap.mmap, mapped._mmap).madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    return mapped
