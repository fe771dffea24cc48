"""Builds the encoder that a configuration names."""

import torch

from gif_core.embedding.encoders.base import ImageEncoder
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
