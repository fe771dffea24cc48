"""Inputs of benchmarks: drawn faces in a shard, random codes and random code vectors of any number of identities."""

# Shapes: N identities, D dimensions, L code length.

import shutil
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.images import Faces
from gif_core.ingestion.shards import FaceBatch, ShardFile
from gif_core.runtime import create_matrix, expect_scattered, map_matrix, size
from gif_core.synthetic import draw_jpeg
from gif_core.tokenization import Codes, CodeShape, code_shape
from schemas.errors import GifError
from schemas.tokenization import TokenizationConfig

DISTINCT: Final = 64
"""Faces that are drawn; more images repeat them."""
RECORDS: Final = 256
"""Images in a record batch."""
BLOCK: Final = 4096
"""Rows that are drawn of a large matrix; the others repeat them."""
VECTORS: Final = "vectors"


def draw_images(count: int) -> list[bytes]:
    """JPEG files of synthetic faces of as many identities, the first `DISTINCT` of them different."""
    drawn = [draw_jpeg(0, identity, 0) for identity in range(min(count, DISTINCT))]
    return [drawn[number % len(drawn)] for number in range(count)]


def draw_faces(folder: Path, count: int, identities: int, workers: int) -> Faces:
    """A shard of `count` images, whose identities are spread over all."""
    path, images = folder / "faces-00000.arrow", draw_images(count)
    shard = ShardFile(path)
    for start in range(0, count, RECORDS):
        batch = FaceBatch()
        for row in range(start, min(start + RECORDS, count)):
            batch.add(row * identities // count, [f"{row}.jpg"], [images[row]])
        shard.write(batch)
    shard.finish()
    return Faces([path], workers=workers)


def draw_vectors(folder: Path, identities: int, dim: int) -> NDArray[np.float32]:
    """Unit vectors in a mapped file, as training reads them."""
    _check_room(folder, identities, dim)
    path, rng = folder / "vectors.safetensors", np.random.default_rng(0)
    block_ND = rng.standard_normal((min(BLOCK, identities), dim), np.float32)
    block_ND /= np.linalg.norm(block_ND, axis=1, keepdims=True)
    create_matrix(path, VECTORS, identities, dim)
    vectors_ND = map_matrix(path, VECTORS, writable=True)
    for start in range(0, identities, BLOCK):
        vectors_ND[start : start + BLOCK] = block_ND[: min(BLOCK, identities - start)]
    return expect_scattered(map_matrix(path, VECTORS))


def _check_room(folder: Path, identities: int, dim: int) -> None:
    needed, free = identities * dim * np.dtype(np.float32).itemsize, shutil.disk_usage(folder).free
    if needed > free:
        raise GifError(
            f"{identities:,} code vectors of {dim} dimensions take {size(needed)} of the temporary folder {folder}, "
            f"where {size(free)} are free: set TMPDIR to a folder on a larger disk, or --identities to fewer"
        )


def number_codes(identities: int, config: TokenizationConfig) -> tuple[Codes, CodeShape]:
    """The first codes of the shape that the settings give so many identities."""
    shape = code_shape(identities, config)
    number_N = np.arange(identities)
    capacity_L = np.array([shape.capacity(level + 1) for level in range(shape.length)])
    return (number_N[:, None] // capacity_L % shape.vocab_size).astype(np.int32), shape
