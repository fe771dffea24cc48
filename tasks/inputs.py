"""Opening what other stages have published."""

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from gif_core.artifacts import Artifact
from gif_core.faces import Faces


def open_faces(faces: Artifact, split: str, workers: int) -> Faces:
    """The faces of one split (`identities` or `held_out`), mapped into memory."""
    return Faces([faces.path(name) for name in faces.names(f"{split}-")], workers=workers)


def open_code_vectors(separation: Artifact) -> NDArray[np.float32]:
    """H, one row per identity."""
    vectors: NDArray[np.float32] = load_file(separation.path("code_vectors.safetensors"))["code_vectors"]
    return vectors
