"""A trained model in use: what turns images into features and finds people, opened from artifacts."""

# Shapes: B images, D dimensions.

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gif_core.artifacts import Artifact
from gif_core.code_table import read_codes
from gif_core.evaluation import embed_images
from gif_core.identification import Gallery
from gif_core.inputs import open_code_vectors
from gif_core.models import check_reads_codes, load_backbone, load_token_heads
from schemas.stages import StageName


def open_backbone(training: Artifact, device: torch.device) -> nn.Module:
    """The network that makes features."""
    return load_backbone(training.path("backbone.safetensors"), training.path("model.json")).to(device)


def open_gallery(artifacts: Mapping[StageName, Artifact], *, beam: int, device: torch.device) -> Gallery:
    """The people whom a model was trained on, with their codes and code vectors; NoTokenHeadsError if it has none."""
    training = artifacts["training"]
    check_reads_codes(training.path("model.json"))
    heads = load_token_heads(training.path("head.safetensors"), training.path("model.json"))
    codes_NL, shape = read_codes(artifacts["tokenization"].path("codes.duckdb"))
    vectors_ND = open_code_vectors(artifacts["separation"])
    return Gallery(heads, codes_NL, shape, vectors_ND, beam=beam, device=device)


class LoadedImages:
    """Images that are in memory already."""

    def __init__(self, images_BHWC: NDArray[np.uint8]) -> None:
        self.images_BHWC = images_BHWC

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """RGB images [B, 112, 112, 3]."""
        return self.images_BHWC[indices]


def embed_faces(model: nn.Module, images_BHWC: NDArray[np.uint8], device: torch.device) -> NDArray[np.float32]:
    """Features of unit length [B, D], of image and mirror together."""
    rows_B = np.arange(len(images_BHWC))
    return np.concatenate(list(embed_images(model, LoadedImages(images_BHWC), rows_B, flip=True, device=device)))
