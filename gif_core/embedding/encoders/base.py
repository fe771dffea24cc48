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
        return nn.functional.normalize(self._features(images_BHWC), dim=1)

    @torch.inference_mode()
    def encode_both(self, images_BHWC: NDArray[np.uint8], *, mirror: bool) -> tuple[Tensor, Tensor | None]:
        """Return the un-normalised features [B, D] of the faces and, with `mirror`, of their mirrored images."""
        mirrored_BHWC = np.ascontiguousarray(images_BHWC[:, :, ::-1]) if mirror else None
        return self._features(images_BHWC), None if mirrored_BHWC is None else self._features(mirrored_BHWC)

    def _features(self, images_BHWC: NDArray[np.uint8]) -> Tensor:
        images_BCHW = self.preprocessing(images_BHWC, self.device)
        with autocast(self.device, self.precision):
            return self.tower(images_BCHW).float()
