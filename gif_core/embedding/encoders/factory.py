"""Builds the encoder that a configuration names."""

from functools import cache

import torch

from gif_core.backbones import WeightsError
from gif_core.embedding.encoders.base import ImageEncoder
from gif_core.embedding.encoders.files import describe_weights, weights_file
from schemas.embedding import EmbeddingConfig


def build_encoder(config: EmbeddingConfig, device: torch.device) -> ImageEncoder:
    """Build the encoder with its weights; only its own library is imported."""
    if config.encoder == "timm":
        from gif_core.embedding.encoders.timm_encoder import TimmEncoder

        return TimmEncoder(config, device)
    if config.encoder == "backbone":
        from gif_core.embedding.encoders.backbone_encoder import BackboneEncoder

        return BackboneEncoder(config, device)
    from gif_core.embedding.encoders.open_clip_encoder import OpenClipEncoder

    return OpenClipEncoder(config, device)


@cache
def open_encoder(config: EmbeddingConfig, weights: str, device: torch.device) -> ImageEncoder:
    """Open the encoder once per process; WeightsError if its weights are not those in the key of the work."""
    found = describe_weights(config)
    if found != weights:
        raise WeightsError(f"{weights_file(config)} has changed since the run began: {found}, not {weights}")
    return build_encoder(config, device)
