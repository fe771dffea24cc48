"""A head by its name."""

# Shapes: N identities, D dimensions, L tokens of a code.

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gif_core.heads.base import Head
from gif_core.heads.gif import GifHead
from schemas.training import TrainingConfig


def build_head(
    config: TrainingConfig, codes_NL: NDArray[np.integer[Any]], code_vectors_ND: NDArray[np.floating[Any]]
) -> Head:
    """The head called `config.head`."""
    return GifHead(codes_NL, code_vectors_ND, scale=config.scale, gamma=config.gamma)
