"""Identities that are added to an existing code table: their vectors and labels, read from a file."""

# Shapes: M new identities, D dimensions.

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

NAMES = ("label", "image")
"""Columns that may hold the label of an identity; the first one present is used."""


@dataclass(frozen=True)
class NewIdentities:
    """One row per identity, with unit vectors."""

    labels: list[str]
    num_samples_M: NDArray[np.int64]
    vectors_MD: NDArray[np.float32]


def read_vectors(path: Path) -> NDArray[np.float32]:
    """Read the column `vector` of a Parquet file, or a .npy file, as unit rows."""
    vectors_MD = _read_npy(path) if path.suffix == ".npy" else _rows_of(path, pq.read_table(path, columns=["vector"]))
    if not np.isfinite(vectors_MD).all():
        raise ValueError(f"{path} has vectors that are not finite")
    norms_M1 = np.linalg.norm(vectors_MD, axis=1, keepdims=True)
    if not norms_M1.all():
        raise ValueError(f"row {int(norms_M1.argmin())} of {path} is a vector of zeros, which has no direction")
    unit_MD: NDArray[np.float32] = (vectors_MD / norms_M1).astype(np.float32, copy=False)
    return unit_MD


def read_new_identities(path: Path) -> NewIdentities:
    """Read the identities of a file that `gif encode` or the embedding stage wrote; unlabelled ones are numbered."""
    if path.suffix not in {".npy", ".parquet"}:
        raise ValueError(f"{path}: vectors must be in a .parquet or .npy file")
    if path.suffix == ".parquet" and "vector" not in pq.read_schema(path).names:
        raise ValueError(f"{path} has no column `vector`; its columns are {', '.join(pq.read_schema(path).names)}")
    vectors_MD = read_vectors(path)
    columns = pq.read_schema(path).names if path.suffix == ".parquet" else []
    wanted = [name for name in (*NAMES, "num_samples") if name in columns]
    known = pq.read_table(path, columns=wanted) if wanted else pa.table({})
    name = next((name for name in NAMES if name in wanted), None)
    labels = known[name].cast("string").to_pylist() if name else [f"new-{row:06d}" for row in range(len(vectors_MD))]
    counts_M = known["num_samples"].to_numpy() if "num_samples" in wanted else np.ones(len(vectors_MD), np.int64)
    return NewIdentities(labels, counts_M, vectors_MD)


def append_identities(codes: Path, new: NewIdentities) -> pa.Table:
    """Return the identities of a `codes.parquet` followed by the new ones, as a table of identities."""
    known = pq.read_table(codes, columns=["label", "num_samples"])
    labels = pa.chunked_array([*known["label"].chunks, pa.array(new.labels, pa.string())])
    counts = np.concatenate([known["num_samples"].to_numpy(), new.num_samples_M])
    return pa.table({"identity_id": np.arange(len(counts)), "label": labels, "num_samples": counts})


def _read_npy(path: Path) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = np.load(path, allow_pickle=False)
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.floating):
        raise ValueError(f"{path} holds {vectors.dtype}{vectors.shape}: expected one row of floats per identity")
    return vectors


def _rows_of(path: Path, table: pa.Table) -> NDArray[np.float32]:
    column = table["vector"].combine_chunks()
    flat: NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=False)
    if not len(column) or len(flat) % len(column) or column.null_count:
        raise ValueError(f"{path}: every row needs a vector, all of the same length")
    return flat.reshape(len(column), -1)
