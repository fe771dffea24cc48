"""How good a code table is: how full it is, what the capacity bound costs, and how much structure codes keep.

Shapes: N identities, Q sampled identities, K neighbours, D dimensions, L code length, P nodes of a level.
"""

from dataclasses import asdict, dataclass
from itertools import pairwise

import faiss
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gif_core.tokenization.codes import Codes, CodeShape, Prefixes, walk_prefixes
from gif_core.tokenization.kmeans import spherical_kmeans
from gif_core.tokenization.prefix_sums import Floats, sum_rows, unit_rows

Integers = npt.NDArray[np.int64]

QUALITY_FILE = "quality.parquet"
NEIGHBOURS = 10
SAMPLED_ROWS = 1000
"""Identities whose neighbours are looked for, among all identities."""
SAMPLED_NODES = 4
"""Nodes of a level that are clustered again without the bound."""
MOST_MEMBERS = 200_000
"""Larger nodes are not clustered again: a sample of them would fit k-means closer than their members can be fitted."""
MORE_ROUNDS = 5
"""Rounds of k-means from the clusters there are."""
_ROWS, _NODES = range(2)
SCHEMA = pa.schema(
    [
        ("level", pa.int32()),
        ("nodes", pa.int64()),
        ("largest", pa.int64()),
        ("capacity", pa.int64()),
        ("occupancy", pa.float64()),
        ("objective", pa.float64()),
        ("bounded", pa.float64()),
        ("unbounded", pa.float64()),
        ("neighbours_together", pa.float64()),
        ("by_chance", pa.float64()),
    ]
)


@dataclass(frozen=True)
class LevelQuality:
    """Level j of a code table: the clusters of identities with the same first j tokens."""

    level: int
    nodes: int
    largest: int
    capacity: int
    occupancy: float
    """Identities by seats, over the nodes that anybody is in."""
    objective: float
    """Mean cosine of an identity to the mean direction of its node."""
    bounded: float | None
    """The same, over nodes whose parent was sampled."""
    unbounded: float | None
    """What k-means reaches in those parents without the bound; `bounded` / `unbounded` is the bound's cost. Both are
    null when no parent of a fitting size was split."""
    neighbours_together: float | None
    """Share of the ten nearest neighbours, over sampled identities, that are in the same node."""
    by_chance: float | None
    """That share if the same codes had been dealt out at random, as atomic codes are."""


def code_quality(
    codes_NL: Codes, shape: CodeShape, vectors_ND: Floats, *, iterations: int = 20, seed: int = 0
) -> pa.Table:
    """A row for each level from 1 to l-1, with the fields of `LevelQuality`. Rows are unit vectors."""
    rows_Q = _sample(len(codes_NL), SAMPLED_ROWS, [seed, _ROWS])
    nearest_QK = nearest_neighbours(vectors_ND, rows_Q)
    levels: list[LevelQuality] = []
    *walked, _ = walk_prefixes(codes_NL, shape)
    for parents, nodes in pairwise(walked):
        bounded, unbounded = _cost_of_bound(vectors_ND, parents, nodes, shape.vocab_size, iterations, seed)
        together_QK = nodes.node_N[nearest_QK] == nodes.node_N[rows_Q, None]
        capacity, count = shape.capacity(nodes.level), len(nodes.size_P)
        quality = LevelQuality(
            level=nodes.level,
            nodes=count,
            largest=int(nodes.size_P.max()),
            capacity=capacity,
            occupancy=len(codes_NL) / (count * capacity),
            objective=_objective(vectors_ND, nodes.node_N, count) / len(codes_NL),
            bounded=bounded,
            unbounded=unbounded,
            neighbours_together=float(together_QK.mean()) if together_QK.size else None,
            by_chance=chance_together(nodes.size_P),
        )
        levels.append(quality)
    return pa.Table.from_pylist([asdict(level) for level in levels], schema=SCHEMA)


def nearest_neighbours(vectors_ND: Floats, rows_Q: Integers, neighbours: int = NEIGHBOURS) -> Integers:
    """The nearest other identities of some, by cosine, exact, among all identities."""
    neighbours = min(neighbours, len(vectors_ND) - 1)
    vectors_ND = np.ascontiguousarray(vectors_ND, dtype=np.float32)
    _, found_QX = faiss.knn(vectors_ND[rows_Q], vectors_ND, neighbours + 1, metric=faiss.METRIC_INNER_PRODUCT)
    own_QX = found_QX == rows_Q[:, None]
    # Somebody with many doubles may not be among the nearest to themselves.
    own_QX[~own_QX.any(axis=1), -1] = True
    nearest_QK: Integers = found_QX[~own_QX].reshape(len(rows_Q), neighbours)
    return nearest_QK


def chance_together(size_P: npt.NDArray[np.integer]) -> float | None:
    """The share of all pairs of identities that are in one node: exact, from the sizes alone."""
    total = int(size_P.sum())
    if total < 2:
        return None
    return float((size_P.astype(float) * (size_P - 1)).sum()) / (float(total) * (total - 1))


def _cost_of_bound(
    vectors_ND: Floats, parents: Prefixes, nodes: Prefixes, num_tokens: int, iterations: int, seed: int
) -> tuple[float | None, float | None]:
    """The objective of sampled parents' children as they are, and that of k-means without the bound (Algorithm 1)."""
    split = np.flatnonzero((parents.size_P > num_tokens) & (parents.size_P <= MOST_MEMBERS))
    bounded, unbounded, members = 0.0, 0.0, 0
    for node in split[_sample(len(split), SAMPLED_NODES, [seed, _NODES, parents.level])]:
        rows = np.flatnonzero(parents.node_N == node)
        some_XD = vectors_ND if len(rows) == len(vectors_ND) else vectors_ND[rows]
        children, child_X = np.unique(nodes.node_N[rows], return_inverse=True)
        bounded += _objective(some_XD, child_X, len(children))
        unbounded += _unbounded(some_XD, child_X, num_tokens, iterations, seed)
        members += len(rows)
    return (bounded / members, unbounded / members) if members else (None, None)


def _unbounded(vectors_XD: Floats, child_X: Integers, num_tokens: int, iterations: int, seed: int) -> float:
    """The best objective of k-means from a fresh start and of k-means that goes on from the children there are."""
    fresh_KD: Floats = spherical_kmeans(vectors_XD, num_tokens, iterations=iterations, seed=seed)
    fresh = _objective(vectors_XD, (vectors_XD @ fresh_KD.T).argmax(axis=1), num_tokens)
    for _ in range(MORE_ROUNDS):
        means_KD = unit_rows(sum_rows(vectors_XD, child_X, num_tokens))
        moved_X = (vectors_XD @ means_KD.T).argmax(axis=1)
        if np.array_equal(moved_X, child_X):
            break
        child_X = moved_X
    return max(fresh, _objective(vectors_XD, child_X, num_tokens))


def _objective(vectors_ND: Floats, node_N: npt.NDArray[np.integer], num_nodes: int) -> float:
    """The summed cosine of identities to the mean direction of their node, which is the length of the node's sum."""
    return float(np.linalg.norm(sum_rows(vectors_ND, node_N, num_nodes), axis=1).sum())


def _sample(total: int, most: int, seeds: list[int]) -> Integers:
    """Some of `total` things, in order."""
    if total <= most:
        return np.arange(total)
    return np.sort(np.random.default_rng(seeds).choice(total, most, replace=False))
