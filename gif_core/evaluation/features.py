"""Image features of the encoder and the trained model, one system after another."""

from collections.abc import Generator, Iterable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Inputs
from gif_core.backbones import embed_chunks, embed_images, unit_features
from gif_core.embedding.encoders import ImageEncoder, build_encoder
from gif_core.images import Images
from gif_core.runtime import Progress, pick_device
from gif_core.training import open_backbone
from schemas.run import RunConfig

Features = NDArray[np.float32]


def system_features(
    config: RunConfig, inputs: Inputs, images: Images, rows: NDArray[np.int64]
) -> Iterator[tuple[str, Iterable[Features]]]:
    """Each network of `evaluation.systems` with its unit features of these images, chunk by chunk."""
    device, batch = pick_device(config.execution.device), config.execution.encode_batch
    flip = config.evaluation.flip
    if "encoder" in config.evaluation.systems:
        yield "encoder", encode_images(build_encoder(config.embedding, device), images, rows, flip, batch)
    if "model" in config.evaluation.systems:
        model = open_backbone(inputs["training"], device)
        yield "model", embed_images(model, images, rows, flip=flip, device=device, batch_size=batch)


def encode_images(
    encoder: ImageEncoder, images: Images, rows: NDArray[np.int64], flip: bool, batch: int
) -> Iterator[Features]:
    """Unit features of the encoder in chunks, as `embed_images` yields those of a backbone."""
    both = partial(encoder.encode_both, mirror=flip)
    return (unit_features(*chunk) for chunk in embed_chunks(both, images, rows, batch_size=batch))


def collect_features(chunks: Iterable[Features], activity: str, total: int) -> Generator[Progress, None, Features]:
    """Concatenate the chunks, reporting progress."""
    yield Progress(activity, 0, total)
    collected: list[Features] = []
    for chunk in chunks:
        collected.append(chunk)
        yield Progress(activity, sum(map(len, collected)), total)
    return np.concatenate(collected)
