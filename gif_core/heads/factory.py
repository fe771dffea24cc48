"""Build a head by its name."""

# Shapes: N identities, D dimensions, L code length.

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gif_core.heads.base import Head
from gif_core.heads.broadface import BroadFaceHead
from gif_core.heads.classifier import ClassifierHead
from gif_core.heads.dcq import DcqHead
from gif_core.heads.dul import DulHead
from gif_core.heads.f2c import F2cHead
from gif_core.heads.gif import GifHead
from gif_core.heads.groupface import GroupFaceHead
from gif_core.heads.margins import AdaptiveMargin, CombinedMargin, CurricularMargin, MagnitudeMargin
from gif_core.heads.pairs import PairHead
from gif_core.heads.sample_negatives import SampleNegatives
from gif_core.heads.virtual_fc import VirtualFcHead
from schemas.training import TrainingConfig

PAIR_HEADS: Final = ("dcq", "f2c")
HARDEST: Final = (0.0002, 3, 10)
"""Cosines that F²C pushes down: a share of the pool's slots, at least, at most."""


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
    elif config.head in PAIR_HEADS:
        head = build_pair_head(config, *code_vectors_ND.shape)
    else:
        start_ND = code_vectors_ND if config.rows_from == "code_vectors" else None
        head = build_classifier(config, *code_vectors_ND.shape, seed=seed, start_ND=start_ND)
    if config.sample_negatives:
        head.sample_negatives = build_sample_negatives(config, code_vectors_ND.shape[1])
    return head


def build_sample_negatives(config: TrainingConfig, dim: int) -> SampleNegatives:
    """The term that compares images with images."""
    return SampleNegatives(
        config.sample_negatives,
        dim,
        scale=config.sample_scale,
        margin=config.sample_margin,
        positives=config.sample_positives,
    )


def build_pair_head(config: TrainingConfig, num_identities: int, dim: int) -> PairHead:
    """A head that compares with an average of the network."""
    size = config.queue_size_of_head(num_identities)
    settings = {"scale": config.scale_of_head, "margin": config.margin_of_head}
    settings["average_decay"] = config.average_decay_of_head
    if config.head == "dcq":
        return DcqHead(dim, queue_size=size, **settings)
    share, least, most = HARDEST
    return F2cHead(dim, slots=size, hardest=min(max(int(share * size), least), most), **settings)


def build_classifier(config: TrainingConfig, num_identities: int, dim: int, **start: Any) -> ClassifierHead:
    """A classifier with one row per identity."""
    settings = start | {
        "margin": build_margin(config),
        "scale": config.scale_of_head,
        "sample_rate": config.sample_rate_of_head,
        "filter_above": config.interclass_filter,
    }
    match config.head:
        case "broadface":
            size = config.queue_size_of_head(num_identities)
            return BroadFaceHead(num_identities, dim, queue_size=size, **settings)
        case "virtual_fc":
            return VirtualFcHead(config.anchors_of_head(num_identities), dim, **settings | {"start_ND": None})
        case "dul":
            return DulHead(num_identities, dim, **settings)
        case "groupface":
            return GroupFaceHead(num_identities, dim, groups=config.groups, **settings)
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
        case "arcface" | "broadface" | "virtual_fc" | "dul" | "groupface":
            return CombinedMargin(1.0, margin, 0.0)
    return CombinedMargin(1.0, 0.0, margin)
