"""Sums and means of vectors by code prefix or by any label; the vectors may be memory-mapped."""

# Shapes: N identities, D dimensions, L code length, P prefixes of a level, K labels, B rows of a block.

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from gif_core.tokenization.codes import Codes, CodeShape, Rows, Vectors, walk_prefixes

Floats = npt.NDArray[np.floating]
CHUNK_NUMBERS: Final = 2**24
"""Numbers that are copied at once."""

_BLOCK: Final = 8192


@dataclass(frozen=True)
class PrefixLevel:
    """The distinct prefixes of one level, in lexicographic order."""

    sum_PD: npt.NDArray[np.float32]
    """The summed vectors of each prefix's identities."""
    size_P: Rows
    first_P: Rows
    """One identity with the prefix."""
    parent_P: Rows
    """The prefix without its last token, as a row of the level above; 0 for the root."""
    node_N: Rows
    """The prefix of each identity."""

    def means(self) -> npt.NDArray[np.float32]:
        """Return the mean vector of each prefix."""
        return np.asarray(self.sum_PD / self.size_P[:, None], dtype=np.float32)


def sum_by_prefix(vectors_ND: Vectors, codes_NL: Codes, shape: CodeShape) -> list[PrefixLevel]:
    """Return levels 0 (the root) to l-1 (whose identities differ only in the last token)."""
    walked = list(walk_prefixes(codes_NL, shape))[: shape.length]
    sum_PD = _sum_leaves(vectors_ND, walked[-1].node_N, len(walked[-1].size_P))
    levels: list[PrefixLevel] = []
    for above, here in zip([*walked[-2::-1], walked[0]], walked[::-1], strict=True):
        parent_P = above.node_N[here.first_P]
        levels.append(PrefixLevel(sum_PD, here.size_P, here.first_P, parent_P, here.node_N))
        sum_PD = np.add.reduceat(sum_PD, np.searchsorted(parent_P, np.arange(len(above.size_P))), axis=0)
    return levels[::-1]


def mean_cosines(levels: list[PrefixLevel]) -> list[float]:
    """Return, for each level, the mean cosine of identities to the mean of their prefix, which k-means maximises."""
    return [float(np.linalg.norm(level.sum_PD, axis=1).sum(dtype=np.float64) / level.size_P.sum()) for level in levels]


def in_blocks(vectors_ND: Vectors, rows_N: Rows) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """Yield copies of the rows, in the given order, a few thousand at a time."""
    for start in range(0, len(rows_N), _BLOCK):
        block = slice(start, start + _BLOCK)
        yield block, np.asarray(vectors_ND[rows_N[block]], dtype=np.float32)


def _sum_leaves(vectors_ND: Vectors, leaf_N: Rows, num_leaves: int) -> npt.NDArray[np.float32]:
    order_N = leaf_N.argsort(kind="stable")
    sum_PD = np.zeros((num_leaves, vectors_ND.shape[1]), dtype=np.float32)
    for block, vectors_BD in in_blocks(vectors_ND, order_N):
        leaf_B, start_B = np.unique(leaf_N[order_N[block]], return_index=True)
        sum_PD[leaf_B] += np.add.reduceat(vectors_BD, start_B, axis=0)
    return sum_PD


def sum_rows(vectors_ND: Floats, key_N: npt.NDArray[np.integer], num_keys: int) -> Floats:
    """Return the sum of the rows with each key, in one sequential pass over the rows."""
    num_rows = len(vectors_ND)
    ones_N = np.ones(num_rows, dtype=np.float32)
    member_KN = csc_array((ones_N, key_N, np.arange(num_rows + 1)), shape=(num_keys, num_rows))
    sum_KD: Floats = member_KN @ vectors_ND
    return sum_KD


def chunks(num_rows: int, numbers_per_row: int) -> list[slice]:
    """Return slices that cover all rows, each of about `CHUNK_NUMBERS` numbers."""
    step = max(1, CHUNK_NUMBERS // numbers_per_row)
    return [slice(start, start + step) for start in range(0, num_rows, step)]


def unit_rows(vectors_ND: Floats) -> Floats:
    """Normalise the rows; a row of zeros stays zero."""
    norm_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    unit_ND: Floats = vectors_ND / np.maximum(norm_N1, np.finfo(np.float32).tiny)
    return unit_ND
