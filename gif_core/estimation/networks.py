"""Operations, parameters and activations of the networks that a run names, counted without computing anything."""

from dataclasses import dataclass
from functools import cache

import torch

from gif_core.benchmarking.embed import encoder_flops
from gif_core.benchmarking.peaks import size_of_backbone
from gif_core.benchmarking.setting import encoder_dimension, without_weights
from gif_core.embedding.encoders import build_encoder
from schemas.embedding import EmbeddingConfig

USUAL_ENCODER = "iresnet50"
"""Stands for a backbone as the encoder, whose architecture is in its file."""


@dataclass(frozen=True)
class EncoderSize:
    """An encoder's features and work."""

    dimension: int
    flops: float


@cache
def size_of_encoder(config: EmbeddingConfig) -> EncoderSize:
    """Build the architecture with random weights and count."""
    if config.encoder == "backbone":
        return EncoderSize(512, size_of_backbone(USUAL_ENCODER, 512).flops)
    encoder = build_encoder(without_weights(config), torch.device("cpu"))
    return EncoderSize(encoder_dimension(config), encoder_flops(encoder))


__all__ = ["EncoderSize", "size_of_backbone", "size_of_encoder"]
