"""Opening what other stages have published."""

import json
from pathlib import Path

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


def map_tensor(path: Path, name: str) -> NDArray[np.float32]:
    """A 32-bit float tensor of a safetensors file, read-only, of which only what is used is read."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(_HEADER_BYTES), "little")
        about = json.loads(file.read(header_bytes))[name]
    if about["dtype"] != "F32":
        raise ValueError(f"{name} in {path} is {about['dtype']} where F32 is expected")
    offset = _HEADER_BYTES + header_bytes + about["data_offsets"][0]
    if 0 in about["shape"]:
        return np.zeros(about["shape"], dtype=np.float32)
    mapped: NDArray[np.float32] = np.memmap(path, np.float32, "r", offset, tuple(about["shape"]))
    return mapped
