"""The scores behind the model's metrics, kept so that two models can be compared identity by identity."""

# Shapes: P pairs, N images or templates, Q probes.

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from gif_core.protocols import Search

Identities = NDArray[np.int64]
PAIRS: Final = pa.schema(
    [
        ("set", pa.string()),
        ("pair", pa.int64()),
        ("same", pa.bool_()),
        ("left_identity", pa.int64()),
        ("right_identity", pa.int64()),
        ("score", pa.float64()),
    ]
)
"""`pair` is the number of the pair in its set; a larger score means more alike."""
SEARCHES: Final = pa.schema(
    [
        ("set", pa.string()),
        ("gallery", pa.string()),
        ("identity", pa.int64()),
        ("enrolled", pa.bool_()),
        ("own", pa.float64()),
        ("other", pa.float64()),
        ("rank", pa.int64()),
    ]
)
"""A row for each probe in each gallery: the score of its own identity (-inf if not enrolled), the best other score, and
its rank, counted from 0."""
MOST_DIFFERENT: Final = 200_000
"""Most pairs of different identities kept per set: those with the highest scores, which determine TAR at low FAR."""


def identities_from_pairs(
    left_P: NDArray[np.integer], right_P: NDArray[np.integer], same_P: NDArray[np.bool_]
) -> Identities:
    """The identity of every image or template: those connected by `same` pairs are one identity."""
    count = int(max(left_P.max(initial=-1), right_P.max(initial=-1))) + 1
    links = (np.ones(int(same_P.sum()), np.int8), (left_P[same_P], right_P[same_P]))
    _, identity_N = connected_components(coo_matrix(links, shape=(count, count)), directed=False)
    return np.asarray(identity_N, np.int64)


def keep_pairs(
    title: str,
    score_P: NDArray[np.float64],
    same_P: NDArray[np.bool_],
    left_P: NDArray[np.integer],
    right_P: NDArray[np.integer],
    identity_N: Identities,
    most: int = MOST_DIFFERENT,
) -> pa.Table:
    """Rows of all pairs of one identity and the highest-scoring pairs of different identities, in their order."""
    kept_P = np.arange(len(score_P))
    different = np.flatnonzero(~same_P)
    if len(different) > most:
        highest = different[np.argpartition(-score_P[different], most - 1)[:most]]
        kept_P = np.sort(np.concatenate([np.flatnonzero(same_P), highest]))
    identities = identity_N[left_P[kept_P]], identity_N[right_P[kept_P]]
    columns = [kept_P, same_P[kept_P], *identities, score_P[kept_P]]
    return pa.table([pa.array([title] * len(kept_P), pa.string()), *map(pa.array, columns)], schema=PAIRS)


def keep_searches(title: str, searches: dict[str, Search], identity_Q: Identities) -> pa.Table:
    """One row per probe and gallery."""
    tables = [
        pa.table(
            [
                pa.array([title] * len(identity_Q), pa.string()),
                pa.array([gallery] * len(identity_Q), pa.string()),
                *map(pa.array, (identity_Q, found.is_mate_Q, found.own_Q, found.other_Q, found.rank_Q)),
            ],
            schema=SEARCHES,
        )
        for gallery, found in searches.items()
    ]
    return pa.concat_tables([SEARCHES.empty_table(), *tables])
