"""Code vectors H as a published artifact."""

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Artifact
from gif_core.runtime import map_tensor


def open_code_vectors(separation: Artifact) -> NDArray[np.float32]:
    """H, one row per identity, mapped into memory: it may be larger than that."""
    return map_tensor(separation.path("code_vectors.safetensors"), "code_vectors")
