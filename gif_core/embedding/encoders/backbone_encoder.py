"""A face recognition network as the encoder: one trained here before, or insightface's or CVLFace's."""

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
    """The features of a backbone, on images as it sees them in training."""

    def __init__(self, config: EmbeddingConfig, device: torch.device) -> None:
        """Build the network and load its weights; never a silent fall-back to random ones."""
        if config.image_size not in (None, SIDE):
            raise ValueError(f"embedding.image_size = {config.image_size}: backbones see faces of {SIDE} pixels alone")
        self.model = _build(config).eval().requires_grad_(False).to(device)
        super().__init__(self.model, Preprocessing(SIDE, SIDE, HALF, HALF), device, config.precision)


def _build(config: EmbeddingConfig) -> Backbone:
    """With the weights of a file, or untrained ones, the same every time."""
    path = weights_file(config)
    if path is not None:
        return open_foreign_backbone(config.model, path)
    if config.pretrained != RANDOM:
        raise WeightsError(
            f"embedding.pretrained = {config.pretrained!r} is no file: a backbone has weights of a file only, such as "
            "that of `gif export torch` or insightface's backbone.pth; give its path"
        )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return build_backbone(config.model, USUAL)
