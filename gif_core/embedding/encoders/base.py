"""What an encoder is: a network, its preprocessing and the precision it computes in."""

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
    """Anything that turns RGB faces into unit vectors."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    def encode(self, images_BHWC: NDArray[np.uint8]) -> Tensor:
        """Unit vectors [B, D]; may be called from several threads at once."""
        ...


class ImageEncoder:
    """An image tower of any library."""

    def __init__(
        self, tower: Callable[[Tensor], Tensor], preprocessing: Preprocessing, device: torch.device, precision: str
    ) -> None:
        """`tower` gives features [B, D] of normalised images [B, C, H, W] on the device."""
        self.tower, self.preprocessing, self.device, self.precision = tower, preprocessing, device, precision

    @torch.inference_mode()
    def encode(self, images_BHWC: NDArray[np.uint8]) -> Tensor:
        """Unit vectors [B, D] of RGB faces, in float32 whatever the network computed in."""
        images_BCHW = self.preprocessing(images_BHWC, self.device)
        with autocast(self.device, self.precision):
            features_BD = self.tower(images_BCHW)
        return nn.functional.normalize(features_BD.float(), dim=1)
