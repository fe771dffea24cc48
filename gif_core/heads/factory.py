"""Build a head by its name."""

# Shapes: N identities, D dimensions, L code length.

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gif_core.heads.base import Head
from gif_core.heads.broadface import BroadFaceHead
from gif_core.heads.classifier import ClassifierHead
from gif_core.heads.gif import GifHead
from gif_core.heads.margins import AdaptiveMargin, CombinedMargin, CurricularMargin, MagnitudeMargin
from gif_core.heads.sample_negatives import SampleNegatives
from schemas.training import TrainingConfig

BROADFACE_QUEUE: Final = 32_768
"""Length of BroadFace's queue as its authors have it."""


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
        start_ND = code_vectors_ND if config.rows_from == "code_vectors" else None
        head = build_classifier(config, *code_vectors_ND.shape, seed=seed, start_ND=start_ND)
    if config.sample_negatives:
        scale, margin = config.sample_scale, config.sample_margin
        length, dim = config.sample_negatives, code_vectors_ND.shape[1]
        head.sample_negatives = SampleNegatives(length, dim, scale=scale, margin=margin)
    return head


def build_classifier(config: TrainingConfig, num_identities: int, dim: int, **start: Any) -> ClassifierHead:
    """A classifier with one row per identity."""
    settings = start | {
        "margin": build_margin(config),
        "scale": config.scale_of_head,
        "sample_rate": config.sample_rate_of_head,
        "filter_above": config.interclass_filter,
    }
    if config.head == "broadface":
        return BroadFaceHead(num_identities, dim, queue_size=config.queue_size or BROADFACE_QUEUE, **settings)
    return ClassifierHead(num_identities, dim, **settings)


def build_margin(config: TrainingConfig) -> CombinedMargin:
    """The margin of a per-identity classifier."""
    margin = config.margin_of_head
    match config.head:
        case "combined_margin":
            return CombinedMargin(*config.margins)
        case "adaface":
            return AdaptiveMargin(margin)
        case "curricularface":
            return CurricularMargin(margin)
        case "magface":
            return MagnitudeMargin(margin, norm_weight=config.norm_weight)
        case "arcface" | "broadface":
            return CombinedMargin(1.0, margin, 0.0)
    return CombinedMargin(1.0, 0.0, margin)
