"""Metrics of a code table: occupancy, what the capacity bound costs, and how much neighbourhood structure is kept."""

# Shapes: N identities, Q sampled identities, J = K + 1 search results, K neighbours or clusters, D dimensions, L code
# length, P nodes of a level, R identities of one node.

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

NEIGHBOURS = 10
SAMPLED_ROWS = 1000
"""Identities whose neighbours are searched, among all identities."""
SAMPLED_NODES = 4
"""Nodes per level that are clustered again without the bound."""
MOST_MEMBERS = 200_000
"""Larger nodes are not clustered again: k-means on a sample of their members would overstate the objective."""
MORE_ROUNDS = 5
"""Rounds of k-means that continue from the existing clusters."""
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
        ("random_together", pa.float64()),
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
    """Identities per seat, over the nodes that have members."""
    objective: float
    """Mean cosine of an identity to the mean direction of its node."""
    bounded: float | None
    """The same, over nodes whose parent was sampled."""
    unbounded: float | None
    """What k-means reaches in those parents without the bound; `bounded` / `unbounded` is the cost of the bound. Both
    are null when no parent of a suitable size was split."""
    neighbours_together: float | None
    """Share of the ten nearest neighbours, over sampled identities, that are in the same node."""
    random_together: float | None
    """The same share if the same codes were assigned at random, as atomic codes are."""


def code_quality(
    codes_NL: Codes, shape: CodeShape, vectors_ND: Floats, *, iterations: int = 20, seed: int = 0
) -> pa.Table:
    """Return a row with the fields of `LevelQuality` for each level from 1 to l-1. Vectors are unit rows."""
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
            random_together=random_together(nodes.size_P),
        )
        levels.append(quality)
    return pa.Table.from_pylist([asdict(level) for level in levels], schema=SCHEMA)


def nearest_neighbours(vectors_ND: Floats, rows_Q: Integers, neighbours: int = NEIGHBOURS) -> Integers:
    """Return the nearest other identities of some identities by cosine; the search is exact."""
    neighbours = min(neighbours, len(vectors_ND) - 1)
    vectors_ND = np.ascontiguousarray(vectors_ND, dtype=np.float32)
    _, found_QJ = faiss.knn(vectors_ND[rows_Q], vectors_ND, neighbours + 1, metric=faiss.METRIC_INNER_PRODUCT)
    own_QJ = found_QJ == rows_Q[:, None]
    # An identity with many duplicates may not be among its own nearest.
    own_QJ[~own_QJ.any(axis=1), -1] = True
    nearest_QK: Integers = found_QJ[~own_QJ].reshape(len(rows_Q), neighbours)
    return nearest_QK


def random_together(size_P: npt.NDArray[np.integer]) -> float | None:
    """Return the share of all pairs of identities that are in one node, computed from the sizes."""
    total = int(size_P.sum())
    if total < 2:
        return None
    return float((size_P.astype(float) * (size_P - 1)).sum()) / (float(total) * (total - 1))


def _cost_of_bound(
    vectors_ND: Floats, parents: Prefixes, nodes: Prefixes, num_tokens: int, iterations: int, seed: int
) -> tuple[float | None, float | None]:
    """Return the objective of the children of sampled parents, and that of k-means without the bound (Algorithm 1)."""
    split = np.flatnonzero((parents.size_P > num_tokens) & (parents.size_P <= MOST_MEMBERS))
    bounded, unbounded, members = 0.0, 0.0, 0
    for node in split[_sample(len(split), SAMPLED_NODES, [seed, _NODES, parents.level])]:
        rows = np.flatnonzero(parents.node_N == node)
        vectors_RD = vectors_ND if len(rows) == len(vectors_ND) else vectors_ND[rows]
        children, child_R = np.unique(nodes.node_N[rows], return_inverse=True)
        bounded += _objective(vectors_RD, child_R, len(children))
        unbounded += _unbounded(vectors_RD, child_R, num_tokens, iterations, seed)
        members += len(rows)
    return (bounded / members, unbounded / members) if members else (None, None)


def _unbounded(vectors_RD: Floats, child_R: Integers, num_tokens: int, iterations: int, seed: int) -> float:
    """Return the better objective of k-means from scratch and of k-means that continues from the given children."""
    fresh_KD: Floats = spherical_kmeans(vectors_RD, num_tokens, iterations=iterations, seed=seed)
    fresh = _objective(vectors_RD, (vectors_RD @ fresh_KD.T).argmax(axis=1), num_tokens)
    for _ in range(MORE_ROUNDS):
        means_KD = unit_rows(sum_rows(vectors_RD, child_R, num_tokens))
        moved_R = (vectors_RD @ means_KD.T).argmax(axis=1)
        if np.array_equal(moved_R, child_R):
            break
        child_R = moved_R
    return max(fresh, _objective(vectors_RD, child_R, num_tokens))


def _objective(vectors_ND: Floats, node_N: npt.NDArray[np.integer], num_nodes: int) -> float:
    """Return the summed cosine of identities to the mean of their node: the norms of the node sums."""
    return float(np.linalg.norm(sum_rows(vectors_ND, node_N, num_nodes), axis=1).sum())


def _sample(total: int, most: int, seeds: list[int]) -> Integers:
    """Return at most `most` random indices below `total`, sorted."""
    if total <= most:
        return np.arange(total)
    return np.sort(np.random.default_rng(seeds).choice(total, most, replace=False))
