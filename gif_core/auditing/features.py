"""Features of all faces of an ingestion, by an encoder or by a trained model, in a mapped file."""

# Shapes: N images, B images of a batch, D dimensions.

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import Artifact
from gif_core.backbones import embed_images
from gif_core.embedding.encoders import build_encoder
from gif_core.images import Images
from gif_core.runtime import Progress, pick_device, prefetch
from gif_core.training import open_backbone
from schemas.embedding import EmbeddingConfig

BATCH: Final = 256
Chunks = Iterator[NDArray[np.float32]]


class Network(Protocol):
    """What turns faces into unit features."""

    @property
    def name(self) -> str:
        """For the page and the summary."""
        ...

    def features(self, images: Images, rows: NDArray[np.int64]) -> Chunks:
        """Features of these images, chunk by chunk."""
        ...


class EncoderNetwork:
    """The encoder of a run."""

    def __init__(self, config: EmbeddingConfig, device: str) -> None:
        """Open the encoder."""
        self.name = f"encoder {config.model}"
        self._encoder = build_encoder(config, pick_device(device))

    def features(self, images: Images, rows: NDArray[np.int64]) -> Chunks:
        """Encode the images."""
        batches = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        with closing(prefetch(images.load, batches, depth=2, workers=1)) as loaded:
            for images_BHWC in loaded:
                yield self._encoder.encode(images_BHWC).cpu().numpy()


class ModelNetwork:
    """A trained model."""

    def __init__(self, training: Artifact, device: str) -> None:
        """Open the backbone."""
        self.name = f"model {training.ref}"
        self._device = pick_device(device)
        self._backbone = open_backbone(training, self._device)

    def features(self, images: Images, rows: NDArray[np.int64]) -> Chunks:
        """Embed the images and their mirrors."""
        return embed_images(self._backbone, images, rows, flip=True, device=self._device, batch_size=BATCH)


def map_features(chunks: Iterable[NDArray[np.float32]], path: Path, total: int) -> Generator[Progress, None, Any]:
    """Write features to a file as they come, and return it as a mapped matrix [N, D] of half precision."""
    matrix, done = None, 0
    yield Progress("features", 0, total)
    for chunk_BD in chunks:
        if matrix is None:
            matrix = np.lib.format.open_memmap(path, "w+", np.float16, (total, chunk_BD.shape[1]))
        matrix[done : done + len(chunk_BD)] = chunk_BD
        done += len(chunk_BD)
        yield Progress("features", done, total)
    return matrix
