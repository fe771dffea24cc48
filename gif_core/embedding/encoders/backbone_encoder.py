"""A face recognition backbone as the encoder: trained here, by insightface or by CVLFace."""

from typing import Final

import torch

from gif_core.backbones import USUAL, Backbone, WeightsError, build_backbone, open_foreign_backbone
from gif_core.embedding.encoders.base import ImageEncoder
from gif_core.embedding.encoders.files import RANDOM, weights_file
from gif_core.embedding.encoders.preprocessing import Preprocessing
from schemas.embedding import EmbeddingConfig

SIDE: Final = 112
HALF: Final = (0.5, 0.5, 0.5)


class BackboneEncoder(ImageEncoder):
    """The features of a backbone, on images preprocessed as in its training."""

    def __init__(self, config: EmbeddingConfig, device: torch.device) -> None:
        """Build the network and load its weights; there is no silent fallback to random ones."""
        if config.image_size not in (None, SIDE):
            raise ValueError(
                f"embedding.image_size = {config.image_size}: backbones accept faces of {SIDE} pixels only"
            )
        self.model = _build(config).eval().requires_grad_(False).to(device)
        super().__init__(self.model, Preprocessing(SIDE, SIDE, HALF, HALF), device, config.precision)


def _build(config: EmbeddingConfig) -> Backbone:
    """Build the backbone with the weights of a file, or with reproducible untrained weights."""
    path = weights_file(config)
    if path is not None:
        return open_foreign_backbone(config.model, path)
    if config.pretrained != RANDOM:
        raise WeightsError(
            f"embedding.pretrained = {config.pretrained!r} is not a file: set it to the path of a backbone's weights, "
            "such as a file of `gif export torch` or insightface's backbone.pth"
        )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return build_backbone(config.model, USUAL)
