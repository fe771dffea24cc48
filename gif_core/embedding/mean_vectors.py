"""Embedding (Eq. 3): the vector of an identity is the mean of its faces' encoder features.

Faces are encoded in parts, each a piece of a shard that one process computes and stores. A part holds the feature sums
of its identities, so an identity whose faces are in several parts is the sum over them.
"""

# Shapes: N identities, R rows of a part, P identities of a part, B faces in a batch, D dimensions, H height,
# W width, C channels.

import hashlib
import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Semaphore
from typing import Any, Final

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, save

from gif_core.embedding.encoders.base import Encoder
from gif_core.images import Faces
from gif_core.runtime import prefetch
from schemas.artifacts import StoredFile
from schemas.stages import VERSIONS

WINDOW: Final = 2048
"""Identities whose parts are summed at a time."""
CPU_BATCH: Final = 32
"""Faces that one core encodes at a time; larger batches only need more memory."""
GPU_BATCHES: Final = 2
"""Batches on a GPU at a time, whatever the number of decoding threads: one is computed while the next is copied."""
LEAST_COHESIVE: Final = 100
"""Rows of the table of suspected label errors."""


@dataclass(frozen=True)
class Part:
    """A piece of a shard: record batches that make up about one `pieces`-th of it."""

    key: str
    """Digest of all that the result depends on: the shard's content, the piece and the encoder."""
    shard: str
    piece: int
    pieces: int


@dataclass(frozen=True)
class PartSums:
    """Counts and feature sums of a part's identities, ordered by identity id."""

    ids_P: NDArray[np.int64]
    counts_P: NDArray[np.int64]
    sums_PD: NDArray[np.float64]

    @property
    def span(self) -> tuple[int, int]:
        """First and last identity; (0, -1) if there are none."""
        return (int(self.ids_P[0]), int(self.ids_P[-1])) if len(self.ids_P) else (0, -1)

    def to_bytes(self) -> bytes:
        """Serialise as a safetensors file."""
        return save({"identity_id": self.ids_P, "num_samples": self.counts_P, "sum": self.sums_PD})

    @classmethod
    def from_bytes(cls, content: bytes) -> "PartSums":
        """Read a file of `to_bytes`."""
        tensors = load(content)
        return cls(tensors["identity_id"], tensors["num_samples"], tensors["sum"])


@dataclass
class Summary:
    """Headline metrics, updated while vectors are written."""

    dimensions: int = 0
    identities: int = 0
    images: int = 0
    total_D: NDArray[np.float64] | float = 0.0
    lengths: list[float] = field(default_factory=lambda: [float("inf"), 0.0, 0.0])
    """Minimum, sum and maximum of cohesion, the length of a mean before it is normalised."""
    lowest: list[tuple[float, int, int]] = field(default_factory=list)

    def add(self, table: pa.Table) -> None:
        """Add a window of identities."""
        vectors_ND, cohesion = vectors_of(table), table["cohesion"].to_numpy()
        self.dimensions = vectors_ND.shape[1]
        self.identities += len(table)
        self.images += int(table["num_samples"].to_numpy().sum())
        self.total_D = self.total_D + vectors_ND.sum(axis=0, dtype=np.float64)
        least, total, greatest = self.lengths
        self.lengths = [min(least, cohesion.min()), total + cohesion.sum(), max(greatest, cohesion.max())]
        several = table["num_samples"].to_numpy() > 1
        columns = (
            cohesion[several],
            table["identity_id"].to_numpy()[several],
            table["num_samples"].to_numpy()[several],
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self.lowest = heapq.nsmallest(LEAST_COHESIVE, [*self.lowest, *rows])

    @property
    def metrics(self) -> dict[str, float | int]:
        """The metrics; `mean_cosine` over all pairs of identities shows how narrow the encoder's cone is."""
        pairs = self.identities * (self.identities - 1)
        square = float(np.sum(np.square(self.total_D)))
        return {
            "dimensions": self.dimensions,
            "images": self.images,
            "mean_cosine": (square - self.identities) / pairs if pairs else 1.0,
            "least_cohesion": float(self.lengths[0]),
            "mean_cohesion": float(self.lengths[1]) / max(self.identities, 1),
        }

    def least_cohesive(self, labels: Mapping[int, str]) -> pa.Table:
        """The identities with the lowest cohesion: most likely to mix images of several persons."""
        return pa.table(
            {
                "identity_id": pa.array([identity for _, identity, _ in self.lowest], pa.int64()),
                "label": pa.array([labels[identity] for _, identity, _ in self.lowest], pa.string()),
                "num_samples": pa.array([count for _, _, count in self.lowest], pa.int64()),
                "cohesion": pa.array([cohesion for cohesion, _, _ in self.lowest], pa.float64()),
            }
        )


def plan_parts(shards: Sequence[StoredFile], settings: Mapping[str, Any], part_bytes: int) -> list[Part]:
    """Cut shards into pieces of about `part_bytes`, by their sizes alone, without reading them."""
    parts = []
    for shard in shards:
        pieces = max(1, round(shard.size / part_bytes))
        for piece in range(pieces):
            facts = [VERSIONS["embedding"], shard.sha256, piece, pieces, dict(settings)]
            key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
            parts.append(Part(key, shard.name, piece, pieces))
    return parts


def embed_part(encoder: Encoder, faces: Faces, part: Part, *, batch_size: int, workers: int = 1) -> PartSums:
    """Add up the unit features of the part's identities in float64.

    Each thread decodes and encodes whole batches, so decoding and encoding overlap. The result does not depend on the
    number of threads.
    """
    batches = _row_batches(faces, part, batch_size if encoder.device.type != "cpu" else min(batch_size, CPU_BATCH))
    labels_R = _labels(faces, part)
    ids_P, place_R = np.unique(labels_R, return_inverse=True)
    counts_P = np.bincount(place_R, minlength=len(ids_P))
    sums_PD: NDArray[np.float64] | None = None
    done = 0
    turn = Semaphore(workers if encoder.device.type == "cpu" else GPU_BATCHES)
    with _one_thread_each(encoder):
        for features_BD in prefetch(lambda rows: _encode(encoder, faces, rows, turn), batches, workers, workers):
            sums_PD = np.zeros((len(ids_P), features_BD.shape[1])) if sums_PD is None else sums_PD
            np.add.at(sums_PD, place_R[done : done + len(features_BD)], features_BD)
            done += len(features_BD)
    return PartSums(ids_P, counts_P, np.zeros((0, 0)) if sums_PD is None else sums_PD)


def identity_vectors(
    spans: Sequence[tuple[int, int]], load_part: Callable[[int], PartSums], identities: int
) -> Iterator[pa.Table]:
    """Unit mean vectors (Eq. 3), and cohesion: the mean cosine of an identity's faces to their mean.

    `spans` are the first and last identity of every part. Yields windows of identities in order.
    """
    for start in range(0, identities, WINDOW):
        end = min(start + WINDOW, identities)
        needed = [number for number, (first, last) in enumerate(spans) if first < end and last >= start]
        yield _window(map(load_part, needed), start, end)


def vectors_of(table: pa.Table) -> NDArray[np.float32]:
    """The matrix [N, D] of a table of identity vectors."""
    column = table.column("vector").combine_chunks()
    flat: NDArray[np.float32] = column.flatten().to_numpy()
    return flat.reshape(len(column), -1)


def _window(parts: Iterator[PartSums], start: int, end: int) -> pa.Table:
    counts_N, sums_ND = np.zeros(end - start, np.int64), None
    for part in parts:
        inside = (part.ids_P >= start) & (part.ids_P < end)
        sums_ND = np.zeros((end - start, part.sums_PD.shape[1])) if sums_ND is None else sums_ND
        counts_N[part.ids_P[inside] - start] += part.counts_P[inside]
        sums_ND[part.ids_P[inside] - start] += part.sums_PD[inside]
    if sums_ND is None or not counts_N.all():
        raise ValueError(f"identity {start + int(np.argmin(counts_N))} has no face")
    norms_N = np.linalg.norm(sums_ND, axis=1)
    if not norms_N.all():
        raise ValueError(f"the features of identity {start + int(np.argmin(norms_N))} cancel each other out")
    return _table(start, counts_N, (sums_ND / norms_N[:, None]).astype(np.float32), norms_N / counts_N)


def _table(
    start: int, counts_N: NDArray[np.int64], vectors_ND: NDArray[np.float32], cohesion_N: NDArray[np.float64]
) -> pa.Table:
    return pa.table(
        {
            "identity_id": pa.array(np.arange(start, start + len(counts_N)), pa.int64()),
            "num_samples": pa.array(counts_N, pa.int64()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors_ND.ravel()), vectors_ND.shape[1]),
            "cohesion": pa.array(cohesion_N, pa.float64()),
        }
    )


def _encode(encoder: Encoder, faces: Faces, rows: NDArray[np.int64], turn: Semaphore) -> NDArray[np.float64]:
    if encoder.device.type == "cpu":
        torch.set_num_threads(1)
    images_BHWC = np.empty((len(rows), *faces.shape), np.uint8)
    faces.fill(images_BHWC, rows)
    with turn:
        features_BD: NDArray[np.float64] = encoder.encode(images_BHWC).cpu().double().numpy()
    if not np.isfinite(features_BD).all():
        bad = int(rows[np.argmin(np.isfinite(features_BD).all(axis=1))])
        raise ValueError(f"the encoder's features of {faces.name(bad)} are not finite: try precision fp32")
    return features_BD


@contextmanager
def _one_thread_each(encoder: Encoder) -> Iterator[None]:
    """Restore torch's thread count afterwards: on a CPU each of our threads uses one, as more would change the bits."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        if encoder.device.type == "cpu":
            torch.set_num_threads(before)


def _record_batches(faces: Faces, part: Part) -> range:
    """The record batches of the shard that belong to the piece."""
    total = len(faces.batches)
    return range(part.piece * total // part.pieces, (part.piece + 1) * total // part.pieces)


def _labels(faces: Faces, part: Part) -> NDArray[np.int64]:
    columns = [faces.batches[number].column("identity_id").to_numpy() for number in _record_batches(faces, part)]
    return np.concatenate([np.empty(0, np.int64), *columns])


def _row_batches(faces: Faces, part: Part, batch_size: int) -> list[NDArray[np.int64]]:
    numbers = _record_batches(faces, part)
    rows = np.arange(faces.starts[numbers.start], faces.starts[numbers.stop])
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
