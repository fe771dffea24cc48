"""Scaling pixels to the range that networks expect."""

# Shapes: B images in a batch, H height, W width, C channels.

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def normalize_pixels(images_BHWC: NDArray[np.uint8] | Tensor, device: torch.device) -> Tensor:
    """(x - 127.5) / 127.5 as [B, C, H, W]; the bytes are copied to the device and scaled there.

    Copies from pinned memory are asynchronous; later work on the GPU waits for them.
    """
    if isinstance(images_BHWC, np.ndarray):
        images_BHWC = torch.from_numpy(np.require(images_BHWC, requirements=["C", "W"]))
    images_BCHW = images_BHWC.to(device, non_blocking=True).permute(0, 3, 1, 2)
    return images_BCHW.to(torch.float32).sub_(127.5).div_(127.5)
