"""The mean code vector of every prefix of a code, in one pass over vectors that may be mapped from a file.

Shapes: N identities, D dimensions, L code length, P prefixes of a level.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gif_core.tokenization.hierarchical_kmeans import Codes, CodeShape, Rows, Vectors, walk_prefixes

_BLOCK = 8192


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
