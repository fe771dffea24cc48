"""Build a head by its name."""

# Shapes: N identities, D dimensions, L code length.

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gif_core.heads.base import Head
from gif_core.heads.classifier import ClassifierHead
from gif_core.heads.gif import GifHead
from gif_core.heads.margins import AdaptiveMargin, CombinedMargin
from gif_core.heads.sample_negatives import SampleNegatives
from schemas.training import TrainingConfig


def build_head(
    config: TrainingConfig,
    codes_NL: NDArray[np.integer[Any]],
    code_vectors_ND: NDArray[np.floating[Any]],
    *,
    num_values: int | None = None,
    seed: int = 0,
) -> Head:
    """The head called `config.head`, with the settings' negatives from other images. Classifiers ignore codes.

    Without the vocab size v (`num_values`) all codes are read once to find it.
    """
    head: Head
    if config.head == "gif":
        num_values = num_values or int(codes_NL.max()) + 1
        head = GifHead(codes_NL, code_vectors_ND, config, num_values=num_values, seed=seed)
    else:
        head = ClassifierHead(
            *code_vectors_ND.shape,
            margin=build_margin(config),
            scale=config.scale_of_head,
            sample_rate=config.sample_rate if config.head == "partial_fc" else 1.0,
            seed=seed,
            start_ND=code_vectors_ND if config.rows_from == "code_vectors" else None,
        )
    if config.sample_negatives:
        scale, margin = config.sample_scale, config.sample_margin
        length, dim = config.sample_negatives, code_vectors_ND.shape[1]
        head.sample_negatives = SampleNegatives(length, dim, scale=scale, margin=margin)
    return head


def build_margin(config: TrainingConfig) -> CombinedMargin:
    """The margin of a per-identity classifier."""
    if config.head == "combined_margin":
        return CombinedMargin(*config.margins)
    if config.head == "adaface":
        return AdaptiveMargin(config.margin_of_head)
    if config.head == "arcface":
        return CombinedMargin(1.0, config.margin_of_head, 0.0)
    return CombinedMargin(1.0, 0.0, config.margin_of_head)
