"""Sums and means of code vectors by the prefix of their code, or by any label, over vectors that may be mapped."""

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
"""Numbers that are copied at a time."""

_BLOCK: Final = 8192


@dataclass(frozen=True)
class PrefixLevel:
    """The distinct prefixes of one level, in lexicographic order."""

    sum_PD: npt.NDArray[np.float32]
    """The summed vectors of each prefix's identities."""
    size_P: Rows
    first_P: Rows
    """One identity that has the prefix."""
    parent_P: Rows
    """The prefix one token shorter, as a row of the level above; the root's is 0."""
    node_N: Rows
    """The prefix each identity has."""

    def means(self) -> npt.NDArray[np.float32]:
        """The mean vector of each prefix."""
        return np.asarray(self.sum_PD / self.size_P[:, None], dtype=np.float32)


def sum_by_prefix(vectors_ND: Vectors, codes_NL: Codes, shape: CodeShape) -> list[PrefixLevel]:
    """Levels 0 (the root) to l-1 (the leaves, whose identities differ in the last token alone)."""
    walked = list(walk_prefixes(codes_NL, shape))[: shape.length]
    sum_PD = _sum_leaves(vectors_ND, walked[-1].node_N, len(walked[-1].size_P))
    levels: list[PrefixLevel] = []
    for above, here in zip([*walked[-2::-1], walked[0]], walked[::-1], strict=True):
        parent_P = above.node_N[here.first_P]
        levels.append(PrefixLevel(sum_PD, here.size_P, here.first_P, parent_P, here.node_N))
        sum_PD = np.add.reduceat(sum_PD, np.searchsorted(parent_P, np.arange(len(above.size_P))), axis=0)
    return levels[::-1]


def mean_cosines(levels: list[PrefixLevel]) -> list[float]:
    """For each level, an identity's mean cosine to the mean direction of its prefix: what k-means maximises."""
    return [float(np.linalg.norm(level.sum_PD, axis=1).sum(dtype=np.float64) / level.size_P.sum()) for level in levels]


def in_blocks(vectors_ND: Vectors, rows_N: Rows) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """Copies of the rows, in their order, a few thousand at a time."""
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
    """The sum of the rows that have each key, in one pass over the rows as they lie."""
    num_rows = len(vectors_ND)
    ones_N = np.ones(num_rows, dtype=np.float32)
    member_KN = csc_array((ones_N, key_N, np.arange(num_rows + 1)), shape=(num_keys, num_rows))
    sum_KD: Floats = member_KN @ vectors_ND
    return sum_KD


def chunks(num_rows: int, numbers_per_row: int) -> list[slice]:
    """Slices that cover all rows, each of about `CHUNK_NUMBERS` numbers."""
    step = max(1, CHUNK_NUMBERS // numbers_per_row)
    return [slice(start, start + step) for start in range(0, num_rows, step)]


def unit_rows(vectors_ND: Floats) -> Floats:
    """The directions of the rows; a row of zeros stays one."""
    norm_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    unit_ND: Floats = vectors_ND / np.maximum(norm_N1, np.finfo(np.float32).tiny)
    return unit_ND
