"""Faces as the network sees them: where pixels come from, how they are scaled and read ahead."""

# Shapes: N images in all, B images in a batch, H height, W width, C channels.

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PREFETCH_DEPTH: Final = 2

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")


class FaceImages(Protocol):
    """Labelled, aligned face images that can be read in any order."""

    @property
    def labels_N(self) -> NDArray[np.int64]:  # noqa: N802
        """Identity of every image."""
        ...

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """RGB images [B, 112, 112, 3]; called from a background thread."""
        ...


def normalize_pixels(images_BHWC: NDArray[np.uint8], device: torch.device) -> Tensor:
    """(x - 127.5) / 127.5 as [B, C, H, W]; the bytes travel to the device and are scaled there."""
    owned_BHWC = np.require(images_BHWC, requirements=["C", "W"])
    images_BCHW = torch.from_numpy(owned_BHWC).to(device).permute(0, 3, 1, 2)
    return images_BCHW.to(torch.float32).sub_(127.5).div_(127.5)


def prefetch(
    load: Callable[[Item], Loaded], items: Iterable[Item], depth: int = PREFETCH_DEPTH
) -> Generator[Loaded, None, None]:
    """`load` of every item in order, at most `depth` ahead in one thread that ends with this iterator."""
    pending: deque[Future[Loaded]] = deque()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="gif-prefetch") as pool:
        try:
            for item in items:
                pending.append(pool.submit(load, item))
                if len(pending) > depth:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
