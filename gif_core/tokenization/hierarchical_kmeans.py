"""Algorithm 1: code vectors to identity codes by capacity-bounded hierarchical k-means."""

# Shapes: N identities, of all or of one node, D dimensions, L code length, K clusters (v children of a node).

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from gif_core.tokenization.assignment import assign_bounded, refuse_not_finite
from gif_core.tokenization.codes import Codes, CodeShape, Rows, Vectors
from gif_core.tokenization.kmeans import bounded_clusters

_BLOCK = 8192


@dataclass(frozen=True)
class TokenizationStep:
    """Progress of tokenization, counted in tokens; the last step carries the codes."""

    done: int
    total: int
    codes_NL: Codes | None = None


def tokenize(
    vectors_ND: Vectors,
    shape: CodeShape,
    *,
    iterations: int,
    seed: int,
    points_per_centroid: int = 2048,
    workers: int | None = None,
) -> Iterator[TokenizationStep]:
    """Split the identities into v clusters, and each of those again, until every identity is alone.

    A cluster at token j holds at most v^(l-j) identities, so codes are unique. A node of at most v identities is not
    clustered: each becomes its own child, in identity order, and keeps that index for all remaining tokens.

    `vectors_ND` may be mapped from a file: the centroids of a node are computed from at most v x `points_per_centroid`
    of its rows, and the others are read block by block. Nodes of a level are split in parallel, each on one thread.
    """
    _refuse_bad_vectors(vectors_ND, shape)
    total = len(vectors_ND)
    codes_NL = np.zeros((total, shape.length), dtype=np.int32)
    nodes, done, total = [np.arange(total)], 0, codes_NL.size
    splitter = _Splitter(vectors_ND, shape, iterations, seed, points_per_centroid)
    yield TokenizationStep(0, total)
    with threadpool_limits(1), ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        for level in range(shape.length):
            done += _number_small_nodes(codes_NL, nodes, level, shape.vocab_size)
            nodes = [rows for rows in nodes if len(rows) > shape.vocab_size]
            children: list[Rows] = []
            for rows, token_N in zip(nodes, pool.map(partial(splitter.split, level), nodes), strict=True):
                codes_NL[rows, level] = token_N
                children += _part(rows, token_N)
                done += len(rows)
                yield TokenizationStep(done, total)
            nodes = children
    yield TokenizationStep(total, total, codes_NL)


@dataclass(frozen=True)
class _Splitter:
    """The data and settings that all splits of a tree share."""

    vectors_ND: Vectors
    shape: CodeShape
    iterations: int
    seed: int
    points_per_centroid: int

    def split(self, level: int, rows: Rows) -> Rows:
        """Return the child of each identity of a node: centroids from a sample, then a bounded assignment of all."""
        rng = np.random.default_rng([self.seed, level, int(rows[0])])
        capacity, most = self.shape.capacity(level + 1), self.points_per_centroid * self.shape.vocab_size
        sample = rows if len(rows) <= most else rows[np.sort(rng.choice(len(rows), most, replace=False))]
        sample_ND = _take(self.vectors_ND, sample)
        centroids_KD, settled_N = bounded_clusters(
            sample_ND,
            self.shape.vocab_size,
            capacity=-(-capacity * len(sample) // len(rows)),
            iterations=self.iterations,
            seed=int(rng.integers(2**31)),
        )
        if sample is rows and settled_N is not None:
            return settled_N
        similarity_NK = sample_ND @ centroids_KD.T if sample is rows else self._compare(rows, centroids_KD)
        return assign_bounded(similarity_NK, capacity=capacity)

    def _compare(self, rows: Rows, centroids_KD: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        similarity_NK = np.empty((len(rows), len(centroids_KD)), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            np.matmul(_take(self.vectors_ND, rows[block]), centroids_KD.T, out=similarity_NK[block])
        return similarity_NK


def _refuse_bad_vectors(vectors_ND: Vectors, shape: CodeShape) -> None:
    total = len(vectors_ND)
    if vectors_ND.ndim != 2:
        raise ValueError(f"expected one vector for each identity, got an array of shape {vectors_ND.shape}")
    if not 1 <= total <= shape.capacity(0):
        raise ValueError(f"{total} identities do not fit codes of length={shape.length} vocab_size={shape.vocab_size}")
    for start in range(0, total, _BLOCK):
        refuse_not_finite(vectors_ND[start : start + _BLOCK], "vectors", start)


def _take(vectors_ND: Vectors, rows: Rows) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(vectors_ND[rows], dtype=np.float32)


def _part(rows: Rows, token_N: Rows) -> list[Rows]:
    """Return the rows of each child, ordered by token; within a child rows keep their order."""
    order = token_N.argsort(kind="stable")
    return [part for part in np.split(rows[order], np.bincount(token_N).cumsum()[:-1]) if len(part)]


def _number_small_nodes(codes_NL: Codes, nodes: list[Rows], level: int, most: int) -> int:
    """Use the index within its node for all remaining tokens of nodes of at most `most`; return how many tokens."""
    small = [rows for rows in nodes if len(rows) <= most]
    if not small:
        return 0
    rows_N = np.concatenate(small)
    codes_NL[rows_N, level:] = np.concatenate([np.arange(len(rows)) for rows in small])[:, None]
    return codes_NL[rows_N, level:].size
