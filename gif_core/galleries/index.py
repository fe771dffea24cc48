"""Search among templates: each of them, or compressed ones whose best candidates are compared exactly."""

# Shapes: N identities, B images, D dimensions, K candidates.

from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
IndexKind = Literal["auto", "exact", "compressed"]
EXACT_LIMIT: Final = 50_000
"""Identities up to which `auto` compares with each; `benchmarks/gallery_search.py` measures both."""
CANDIDATES: Final = 256
"""Identities that compressed templates choose for the exact comparison."""
SAMPLE: Final = 16_384
"""Templates that the compression is fitted to."""
BLOCK: Final = 16_384
"""Templates that are compared at once, so that a mapped file is not copied into memory."""


class Index(Protocol):
    """Finds the nearest of N templates."""

    def search(self, z_BD: Floats, top: int) -> tuple[Floats, Rows]:
        """Cosines and rows of the nearest templates [B, K], best first."""


class ExactIndex:
    """Compares with every template. The weighted sums stay where they are, in memory or in a mapped file."""

    def __init__(self, sums_ND: Floats) -> None:
        """Take sums of any length, whose direction counts."""
        self.sums_ND = sums_ND
        blocks = (sums_ND[start : start + BLOCK] for start in range(0, len(sums_ND), BLOCK))
        lengths = [np.sqrt(np.einsum("nd,nd->n", block, block)) for block in blocks]
        self.lengths_N: Floats = np.maximum(np.concatenate([*lengths, np.empty(0, np.float32)]), np.float32(1e-12))

    def search(self, z_BD: Floats, top: int) -> tuple[Floats, Rows]:
        """The nearest templates, exactly."""
        top = min(top, len(self.sums_ND))
        best = np.empty((len(z_BD), 0), np.float32), np.empty((len(z_BD), 0), np.int64)
        for start in range(0, len(self.sums_ND), BLOCK):
            block_ND = self.sums_ND[start : start + BLOCK]
            cosines_BN = z_BD @ block_ND.T
            cosines_BN /= self.lengths_N[start : start + BLOCK]
            rows_BN = _nearest(cosines_BN, top)
            found = np.take_along_axis(cosines_BN, rows_BN, 1), rows_BN + start
            best = _choose(np.hstack([best[0], found[0]]), np.hstack([best[1], found[1]]), top)
        return best

    def compare(self, z_BD: Floats, rows_BK: Rows, top: int) -> tuple[Floats, Rows]:
        """The nearest of these templates; row -1 stands for none."""
        cosines_BK = np.stack(
            [(self.sums_ND[rows_K] @ z_D) / self.lengths_N[rows_K] for z_D, rows_K in zip(z_BD, rows_BK, strict=True)]
        )
        cosines_BK[rows_BK < 0] = -np.inf
        return _choose(cosines_BK, rows_BK, min(top, rows_BK.shape[1]))


class CompressedIndex:
    """Compares with templates of two bits a dimension (product quantisation), then exactly with the best of them."""

    def __init__(self, sums_ND: Floats) -> None:
        """Compress the templates, which takes some ten seconds for a million of 512 dimensions."""
        import faiss

        count, width = sums_ND.shape
        self.exact = ExactIndex(sums_ND)
        self._index: Any = faiss.IndexPQFastScan(width, width // 2, 4, faiss.METRIC_INNER_PRODUCT)
        self._index.train(self._unit(np.linspace(0, count - 1, min(count, SAMPLE)).astype(np.int64)))
        for start in range(0, count, BLOCK):
            self._index.add(self._unit(np.arange(start, min(start + BLOCK, count))))

    def search(self, z_BD: Floats, top: int) -> tuple[Floats, Rows]:
        """The nearest of the templates that compressed ones choose."""
        candidates = min(max(CANDIDATES, 4 * top), self._index.ntotal)
        rows_BK = self._index.search(np.ascontiguousarray(z_BD, np.float32), candidates)[1]
        return self.exact.compare(z_BD, rows_BK, top)

    @property
    def code_bytes(self) -> int:
        """Memory of the compressed templates."""
        return int(self._index.ntotal * self._index.code_size)

    def _unit(self, rows_N: Rows) -> Floats:
        unit_ND: Floats = self.exact.sums_ND[rows_N] / self.exact.lengths_N[rows_N, None]
        return unit_ND


def build_index(sums_ND: Floats, kind: IndexKind = "auto") -> Index:
    """An index of templates of any length; `auto` compares with each of at most EXACT_LIMIT identities."""
    count, width = sums_ND.shape
    if kind == "exact" or (kind == "auto" and count <= EXACT_LIMIT) or width % 2:
        return ExactIndex(sums_ND)
    return CompressedIndex(sums_ND)


def _nearest(cosines_BN: Floats, top: int) -> Rows:
    """Columns of the `top` highest values of each row, in any order."""
    if cosines_BN.shape[1] <= top:
        return np.broadcast_to(np.arange(cosines_BN.shape[1]), cosines_BN.shape)
    if top == 1:
        highest_B1: Rows = cosines_BN.argmax(axis=1, keepdims=True)
        return highest_B1
    return np.argpartition(cosines_BN, -top, axis=1)[:, -top:]


def _choose(cosines_BK: Floats, rows_BK: Rows, top: int) -> tuple[Floats, Rows]:
    """The `top` highest of each row, best first; of equal ones the first."""
    order_BK = np.argsort(-cosines_BK, axis=1, kind="stable")[:, :top]
    return np.take_along_axis(cosines_BK, order_BK, 1), np.take_along_axis(rows_BK, order_BK, 1)
