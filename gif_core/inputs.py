"""Opening what other stages have published."""

import json
import mmap
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Artifact
from gif_core.faces import Faces

_HEADER_BYTES = 8
"""A safetensors file: the length of a header, the header in JSON, and the tensors one after the other."""


def open_faces(faces: Artifact, split: str, workers: int) -> Faces:
    """The faces of one split (`identities` or `held_out`), mapped into memory."""
    return Faces([faces.path(name) for name in faces.names(f"{split}-")], workers=workers)


def open_code_vectors(separation: Artifact) -> NDArray[np.float32]:
    """H, one row per identity, mapped into memory: it may be larger than that."""
    return map_tensor(separation.path("code_vectors.safetensors"), "code_vectors")


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
