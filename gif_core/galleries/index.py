"""Search among templates: exact, or with a graph of neighbours (HNSW) where there are so many that it pays."""

# Shapes: N identities, B images, D dimensions, K candidates.

from typing import Any, Final, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
IndexKind = Literal["auto", "flat", "hnsw"]
FLAT_LIMIT: Final = 200_000
"""Identities up to which `auto` searches exactly, in some 40 ms; `benchmarks/gallery_search.py` measures it."""
NEIGHBOURS: Final = 32
EFFORT_BUILDING: Final = 80
EFFORT_SEARCHING: Final = 512
"""Nodes that are kept in view: of 2,048 queries among 100,000 identities all find what exact search finds."""


def build_index(vectors_ND: Floats, kind: IndexKind = "auto") -> Any:
    """A FAISS index of unit vectors by inner product; `auto` is exact up to FLAT_LIMIT identities."""
    index: Any
    width = vectors_ND.shape[1]
    if kind == "flat" or (kind == "auto" and len(vectors_ND) <= FLAT_LIMIT):
        index = faiss.IndexFlatIP(width)
    else:
        index = faiss.IndexHNSWFlat(width, NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = EFFORT_BUILDING, EFFORT_SEARCHING
    index.add(vectors_ND)
    return index


def search(index: Any, z_BD: Floats, top: int) -> tuple[Floats, NDArray[np.int64]]:
    """Cosines and rows of the nearest templates [B, K], best first."""
    cosines_BK, rows_BK = index.search(np.ascontiguousarray(z_BD, np.float32), min(top, index.ntotal))
    return cosines_BK, rows_BK
