"""Faces as the network sees them: where pixels come from, and how they are scaled."""

# Shapes: N images in all, B images in a batch, H height, W width, C channels.

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class FaceImages(Protocol):
    """Labelled, aligned face images that can be read in any order."""

    @property
    def labels_N(self) -> NDArray[np.int64]:  # noqa: N802
        """Identity of every image."""
        ...

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """RGB images [B, 112, 112, 3]; called from a background thread."""
        ...


def normalize_pixels(images_BHWC: NDArray[np.uint8] | Tensor, device: torch.device) -> Tensor:
    """(x - 127.5) / 127.5 as [B, C, H, W]; the bytes travel to the device and are scaled there.

    From pinned memory they travel while the host goes on; a GPU's later work waits for them by itself.
    """
    if isinstance(images_BHWC, np.ndarray):
        images_BHWC = torch.from_numpy(np.require(images_BHWC, requirements=["C", "W"]))
    images_BCHW = images_BHWC.to(device, non_blocking=True).permute(0, 3, 1, 2)
    return images_BCHW.to(torch.float32).sub_(127.5).div_(127.5)
