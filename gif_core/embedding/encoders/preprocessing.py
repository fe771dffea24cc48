"""Preprocessing of a batch on the device: resize, crop and normalise as the encoder requires.

The transforms of the libraries process one Pillow image at a time. This does the same for a batch of tensors: torch's
antialiased bicubic filter equals that of Pillow.
"""

# Shapes: B images in a batch, H height, W width, C channels, R numbers in a row of pixels.

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate


@dataclass(frozen=True)
class Preprocessing:
    """The input that an encoder requires."""

    size: int
    """Side of the network's input."""
    resized: int
    """The shorter side after resizing; a centre crop of `size` follows."""
    mean: Sequence[float]
    std: Sequence[float]
    interpolation: str = "bicubic"

    def __call__(self, images_BHWC: NDArray[np.uint8], device: torch.device) -> Tensor:
        """Return normalised images [B, C, size, size] on the device; they are transferred as bytes."""
        images_BCHW = torch.from_numpy(images_BHWC).to(device, non_blocking=True).permute(0, 3, 1, 2)
        return self._normalise(self._crop(self._resize(images_BCHW)))

    def _normalise(self, images_BCHW: Tensor) -> Tensor:
        """Work on whole rows of pixels, whose channels are adjacent: a CPU is slow with three numbers at a time."""
        rows_BHR = images_BCHW.permute(0, 2, 3, 1).float().flatten(2)
        mean_R, std_R = (
            torch.tensor(values, device=images_BCHW.device).repeat(self.size) for values in (self.mean, self.std)
        )
        normal_BHR = rows_BHR.sub_(255 * mean_R).div_(255 * std_R)
        return normal_BHR.view(-1, self.size, self.size, 3).permute(0, 3, 1, 2)

    def _resize(self, images_BCHW: Tensor) -> Tensor:
        """Resize and round to bytes, as Pillow does; a CPU resizes bytes faster than floats, a GPU only floats."""
        height, width = images_BCHW.shape[2:]
        shorter = min(height, width)
        target = (self.resized * height // shorter, self.resized * width // shorter)
        if target == (height, width):
            return images_BCHW
        images_BCHW = images_BCHW if images_BCHW.device.type == "cpu" else images_BCHW.float()
        resized = interpolate(images_BCHW, target, mode=self.interpolation, antialias=True)
        return resized.round_().clamp_(0, 255) if resized.is_floating_point() else resized

    def _crop(self, images_BCHW: Tensor) -> Tensor:
        height, width = images_BCHW.shape[2:]
        top, left = round((height - self.size) / 2), round((width - self.size) / 2)
        return images_BCHW[:, :, top : top + self.size, left : left + self.size]
