"""A head by its name."""

# Shapes: N identities, D dimensions, L tokens of a code.

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gif_core.heads.base import Head
from gif_core.heads.gif import GifHead
from schemas.training import TrainingConfig


def build_head(
    config: TrainingConfig,
    codes_NL: NDArray[np.integer[Any]],
    code_vectors_ND: NDArray[np.floating[Any]],
    *,
    num_values: int | None = None,
    seed: int = 0,
) -> Head:
    """The head called `config.head`; without v (`num_values`) all codes are read once to find it."""
    return GifHead(
        codes_NL,
        code_vectors_ND,
        num_values=num_values or int(codes_NL.max()) + 1,
        scale=config.scale,
        gamma=config.gamma,
        code_weight=config.code_weight,
        token_weights=config.token_weights,
        margin=config.token_margin,
        hidden_layers=config.hidden_layers,
        negatives=config.negatives,
        alignment_scale=config.alignment_scale,
        alignment_margin=config.alignment_margin,
        map_width=config.code_map if config.negatives else 0,
        seed=seed,
    )
