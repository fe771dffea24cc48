"""Opens the code vectors H of a published separation."""

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Artifact
from gif_core.runtime import map_tensor


def open_code_vectors(separation: Artifact) -> NDArray[np.float32]:
    """Map H, one row per identity; it may be larger than memory."""
    return map_tensor(separation.path("code_vectors.safetensors"), "code_vectors")
