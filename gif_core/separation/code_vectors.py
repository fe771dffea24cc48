"""Opens the code vectors H of a published separation."""

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Artifact
from gif_core.runtime import map_tensor
from schemas.files import CODE_VECTORS_FILE


def open_code_vectors(separation: Artifact, *, scattered: bool = False) -> NDArray[np.float32]:
    """Map H, one row per identity; it may be larger than memory.

    `scattered`: few rows are read here and there, so the file's size is checked and not its digest, which would read
    all of it.
    """
    path = separation.path(CODE_VECTORS_FILE, digest=not scattered)
    return map_tensor(path, "code_vectors", scattered=scattered)
