"""Embedding images with a trained backbone: their features, with or without the mirrored image."""

# Shapes: B images in a batch, D dimensions, H height, W width, C channels.

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from gif_core.images import Images, normalize_pixels
from gif_core.runtime import prefetch, runs_behind, to_device

Both = tuple[Tensor, Tensor | None]
"""Un-normalised features of images, and of their mirrored images if those were asked for."""
TOGETHER_ON_CPU: Final = 32
"""Images that go through a network together on a CPU, whose caches do not hold the activations of more."""


def embed_images(
    model: nn.Module,
    faces: Images,
    indices: NDArray[np.int64],
    *,
    flip: bool,
    device: torch.device,
    batch_size: int = 256,
) -> Generator[NDArray[np.float32], None, None]:
    """Unit features in chunks; with `flip` those of image and mirror are summed before normalisation."""
    chunks = embed_both(model, faces, indices, mirror=flip, device=device, batch_size=batch_size)
    with closing(chunks):
        for original_BD, mirror_BD in chunks:
            yield unit_features(original_BD, mirror_BD)


def embed_both(
    model: nn.Module,
    faces: Images,
    indices: NDArray[np.int64],
    *,
    mirror: bool = True,
    device: torch.device,
    batch_size: int = 256,
    workers: int = 1,
) -> Generator[Both, None, None]:
    """Un-normalised features of images and, with `mirror`, of their mirrored images, in chunks."""
    was_training = model.training
    model.eval()

    def embed(images_BHWC: NDArray[np.uint8]) -> Both:
        return _embed_batch(model, images_BHWC, mirror, device)

    try:
        yield from embed_chunks(embed, faces, indices, batch_size=batch_size, workers=workers)
    finally:
        model.train(was_training)


def embed_chunks(
    embed: Callable[[NDArray[np.uint8]], Both],
    faces: Images,
    indices: NDArray[np.int64],
    *,
    batch_size: int,
    workers: int = 1,
) -> Generator[Both, None, None]:
    """What any network, given by the features it finds in a batch, finds in these images; they are loaded ahead."""

    def load(start: int) -> NDArray[np.uint8]:
        return faces.load(indices[start : start + batch_size])

    starts = range(0, len(indices), batch_size)
    with closing(prefetch(load, starts, depth=workers + 1, workers=workers)) as batches:
        for images_BHWC in batches:
            yield embed(images_BHWC)


def embed_batch(
    model: nn.Module, images_BHWC: NDArray[np.uint8], *, flip: bool, device: torch.device
) -> NDArray[np.float32]:
    """Unit features of one batch of images, by a model in evaluation mode."""
    original_BD, mirror_BD = _embed_batch(model, images_BHWC, flip, device)
    return unit_features(original_BD, mirror_BD)


def unit_features(original_BD: Tensor, mirror_BD: Tensor | None) -> NDArray[np.float32]:
    """The sum of both, or the features of the images alone, normalised."""
    features_BD = original_BD if mirror_BD is None else original_BD + mirror_BD
    unit_BD: NDArray[np.float32] = F.normalize(features_BD, dim=1).cpu().numpy()
    return unit_BD


@torch.inference_mode()
def _embed_batch(model: nn.Module, images_BHWC: NDArray[np.uint8], mirror: bool, device: torch.device) -> Both:
    """On a GPU image and mirror go through the network together, from pinned memory; on a CPU few images at a time."""
    if not runs_behind(device):
        starts = range(0, max(1, len(images_BHWC)), TOGETHER_ON_CPU)
        parts = [_embed_apart(model, images_BHWC[at : at + TOGETHER_ON_CPU], mirror, device) for at in starts]
        originals, mirrors = zip(*parts, strict=True)
        return torch.cat(originals), torch.cat(mirrors) if mirror else None
    if not mirror:
        return _embed_apart(model, images_BHWC, mirror, device)
    pixels_BHWC = torch.from_numpy(np.require(images_BHWC, requirements=["C", "W"]))
    images_BCHW = normalize_pixels(to_device(pixels_BHWC, device), device)
    original_BD, mirror_BD = model(torch.cat([images_BCHW, images_BCHW.flip(3)])).float().chunk(2)
    return original_BD, mirror_BD


def _embed_apart(model: nn.Module, images_BHWC: NDArray[np.uint8], mirror: bool, device: torch.device) -> Both:
    """Image and mirror one after the other."""
    images_BCHW = normalize_pixels(images_BHWC, device)
    return model(images_BCHW).float(), model(images_BCHW.flip(3)).float() if mirror else None
