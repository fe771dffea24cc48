"""The vectors that a separation starts from: the encoder's, or known code vectors with new ones placed among them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gif_core.artifacts import ArtifactStore
from gif_core.embedding import vectors_of
from gif_core.runtime import create_matrix, map_matrix
from gif_core.separation.code_vectors import open_code_vectors
from gif_core.separation.linear_maps import CHUNK, fit_map, leading_directions, place, project
from gif_core.separation.worker import VECTORS
from schemas.errors import GifError
from schemas.run import RunConfig


def copy_vectors(source: Path, target: Path, dimension: int | None) -> tuple[int, int]:
    """Copy the vectors into a file that can be mapped, some at a time, projected to `dimension` if it is given."""
    table = pq.ParquetFile(source)
    rows, given = table.metadata.num_rows, table.schema_arrow.field("vector").type.list_size
    columns = dimension or given
    if columns > given:
        raise GifError(
            f"separation.dimension={columns} is more than the {given} dimensions of the encoder's vectors: "
            f"ask for {given} or fewer, or take an encoder with longer vectors (embedding.model)"
        )
    basis = leading_directions(_read_vectors(table), columns) if columns < given else None
    start = create_matrix(target, VECTORS, rows, columns)
    done = 0
    for part in _read_vectors(table):
        start[done : done + len(part)] = part if basis is None else project(part, basis)
        done += len(part)
    start.flush()
    return rows, columns


def keep_known_vectors(config: RunConfig, start: Path) -> int:
    """Start from the known code vectors, with new identities placed among them; the number of known ones."""
    store = ArtifactStore(config.store)
    assert config.separation.extends is not None
    known_ND = open_code_vectors(store.open(store.ref("separation", config.separation.extends)))
    all_rows = map_matrix(start, VECTORS, writable=True)
    kept, columns = len(known_ND), known_ND.shape[1]
    if kept > len(all_rows) or columns != all_rows.shape[1]:
        raise GifError(
            f"separation.extends names {kept:,} code vectors of {columns} dimensions, which do not fit "
            f"{len(all_rows):,} vectors of {all_rows.shape[1]}: separate all identities from scratch, without it"
        )
    all_rows[kept:] = place(all_rows[kept:], fit_map(all_rows[:kept], known_ND))
    for begin in range(0, kept, CHUNK):
        all_rows[begin : min(begin + CHUNK, kept)] = known_ND[begin : begin + CHUNK]
    all_rows.flush()
    return kept


def _read_vectors(table: pq.ParquetFile) -> Iterator[NDArray[np.float32]]:
    return (vectors_of(pa.Table.from_batches([batch])) for batch in table.iter_batches(columns=["vector"]))
