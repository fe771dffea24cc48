"""What an encoder is: a network, its preprocessing and its precision."""

# Shapes: B images in a batch, H height, W width, C channels, D dimensions.

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gif_core.embedding.encoders.precision import autocast
from gif_core.embedding.encoders.preprocessing import Preprocessing


class Encoder(Protocol):
    """Maps RGB faces to unit vectors."""

    @property
    def device(self) -> torch.device:
        """The device on which it computes."""
        ...

    def encode(self, images_BHWC: NDArray[np.uint8]) -> Tensor:
        """Return unit vectors [B, D]; may be called from several threads at once."""
        ...


class ImageEncoder:
    """The image tower of a model of any library."""

    def __init__(
        self, tower: Callable[[Tensor], Tensor], preprocessing: Preprocessing, device: torch.device, precision: str
    ) -> None:
        """Keep the parts; `tower` maps normalised images [B, C, H, W] on the device to features [B, D]."""
        self.tower, self.preprocessing, self.device, self.precision = tower, preprocessing, device, precision

    @torch.inference_mode()
    def encode(self, images_BHWC: NDArray[np.uint8]) -> Tensor:
        """Return unit vectors [B, D] of RGB faces, in float32 for any precision of the network."""
        images_BCHW = self.preprocessing(images_BHWC, self.device)
        with autocast(self.device, self.precision):
            features_BD = self.tower(images_BCHW)
        return nn.functional.normalize(features_BD.float(), dim=1)
