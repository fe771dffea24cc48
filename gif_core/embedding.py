"""Embedding (Eq. 3): the vector of an identity is the mean of its faces' encoder features."""

# Shapes: N identities, B faces in a batch, D dimensions.

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from gif_core.images import FaceImages
from gif_core.prefetching import prefetch


class Encoder(Protocol):
    """Anything that turns RGB faces into unit vectors."""

    def encode(self, images_BHWC: NDArray[np.uint8]) -> Tensor:
        """Unit vectors [B, D]."""
        ...


@dataclass(frozen=True)
class EmbeddingStep:
    """Progress, and the sums so far: complete in the last step."""

    images: int
    total: int
    sums_ND: NDArray[np.float64]
    counts_N: NDArray[np.int64]


def embed_identities(encoder: Encoder, faces: FaceImages, *, batch_size: int) -> Iterator[EmbeddingStep]:
    """Add up the unit features of every identity in float64, batch by batch."""
    total = len(faces.labels_N)
    num_identities = int(faces.labels_N.max()) + 1
    batches = np.array_split(np.arange(total), range(batch_size, total, batch_size))
    sums_ND, counts_N = None, np.bincount(faces.labels_N, minlength=num_identities)
    for rows, images in zip(batches, prefetch(faces.load, batches), strict=True):
        features_BD = encoder.encode(images).double().cpu().numpy()
        if sums_ND is None:
            sums_ND = np.zeros((num_identities, features_BD.shape[1]))
        np.add.at(sums_ND, faces.labels_N[rows], features_BD)
        yield EmbeddingStep(int(rows[-1]) + 1, total, sums_ND, counts_N)


def identity_vectors(step: EmbeddingStep) -> pa.Table:
    """Unit mean vectors (Eq. 3), and cohesion: the mean cosine of a person's faces to their own mean."""
    norms_N = np.linalg.norm(step.sums_ND, axis=1)
    vectors_ND = (step.sums_ND / norms_N[:, None]).astype(np.float32)
    values = pa.array(vectors_ND.ravel(), pa.float32())
    return pa.table(
        {
            "identity_id": pa.array(np.arange(len(vectors_ND)), pa.int64()),
            "num_samples": pa.array(step.counts_N, pa.int64()),
            "vector": pa.FixedSizeListArray.from_arrays(values, vectors_ND.shape[1]),
            "cohesion": pa.array(norms_N / step.counts_N, pa.float64()),
        }
    )


def vectors_of(table: pa.Table) -> NDArray[np.float32]:
    """The matrix [N, D] of a table of identity vectors."""
    column = table.column("vector").combine_chunks()
    flat: NDArray[np.float32] = column.flatten().to_numpy()
    return flat.reshape(len(column), -1)
