"""Extension: free codes for new identities, close to their neighbours; existing codes never change."""

# Shapes: N identities of the table, M new identities, B new identities of a block, W new identities without a child
# yet, D dimensions, L code length, K tokens (v children of a node), P nodes of a level, C nodes of the level below.

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gif_core.tokenization.codes import Codes, CodeShape, Integers, check_codes, code_shape, pack_codes, unpack_codes
from gif_core.tokenization.prefix_sums import Floats, chunks, sum_rows, unit_rows
from schemas.tokenization import TokenizationConfig

EMPTY_PENALTY = 4.0
"""Subtracted from the fit to a child without members, so that all children with members come first."""


@dataclass(frozen=True)
class Level:
    """The nodes of one level that have members, in lexicographic order."""

    packed_P: Integers
    """The prefix of each node, packed into an integer."""
    node_N: Integers
    """The node of each identity of the table."""
    size_P: Integers
    sum_PD: Floats
    """The sum of the members' vectors."""

    def means(self) -> Floats:
        """Return the mean vector of each node."""
        mean_PD: Floats = self.sum_PD / self.size_P[:, None]
        return mean_PD

    def find(self, packed: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the rows of the nodes with these packed prefixes, and whether each node has members at all."""
        row = np.minimum(np.searchsorted(self.packed_P, packed), len(self.packed_P) - 1)
        return row, self.packed_P[row] == packed


def extend(codes_NL: Codes, shape: CodeShape, vectors_ND: Floats, new_vectors_MD: Floats) -> Codes:
    """Return codes for new identities: each descends the tree to the closest child mean that has a free code.

    Rows are unit vectors. When more identities request a child than it has free codes, those with the worst second
    choice go first. An empty child is used when all children with members are full, and always for the last token. It
    is chosen by the mean residual (member - node mean) of its token over all nodes, which is what an aligned token
    stands for. All nodes of a level are processed at once; the bound below Eq. 6 holds throughout.
    """
    _check(codes_NL, shape, vectors_ND, new_vectors_MD)
    if shape.length == 1:
        free = np.setdiff1d(np.arange(shape.vocab_size), codes_NL)
        return unpack_codes(free[: len(new_vectors_MD)], shape)
    packed_N, prefix_M = pack_codes(codes_NL, shape), np.zeros(len(new_vectors_MD), dtype=np.int64)
    nodes = _sum_level(np.zeros_like(packed_N), vectors_ND)
    for level in range(shape.length):
        # Children of the last level are single codes that no second identity can join: their means are not needed.
        below_ND = vectors_ND if level + 1 < shape.length else vectors_ND[:, :0]
        children = _sum_level(packed_N // shape.capacity(level + 1), below_ND)
        direction_KD = _token_directions(nodes, codes_NL[:, level], vectors_ND, shape.vocab_size)
        fit_MK = _fit(new_vectors_MD, prefix_M, nodes, children, direction_KD)
        prefix_M = _descend(fit_MK, prefix_M, children, shape.capacity(level + 1))
        nodes = children
    return unpack_codes(prefix_M, shape)


def _check(codes_NL: Codes, shape: CodeShape, vectors_ND: Floats, new_vectors_MD: Floats) -> None:
    check_codes(codes_NL, shape)
    if len(vectors_ND) != len(codes_NL):
        raise ValueError(f"got {len(codes_NL)} codes and {len(vectors_ND)} vectors: each identity needs one of both")
    if new_vectors_MD.ndim != 2 or new_vectors_MD.shape[1] != vectors_ND.shape[1]:
        raise ValueError(f"new vectors have shape {new_vectors_MD.shape}, those of the table {vectors_ND.shape}")
    for name, vectors in (("the table", vectors_ND), ("new identities", new_vectors_MD)):
        if not np.isfinite(vectors).all():
            raise ValueError(f"the vectors of {name} are not finite")
    total = len(codes_NL) + len(new_vectors_MD)
    if total > shape.capacity(0):
        raise ValueError(_explain_full(shape, total, len(new_vectors_MD)))


def _explain_full(shape: CodeShape, total: int, new: int) -> str:
    """Return an error message that names code shapes with room for all identities."""
    wider = code_shape(total, TokenizationConfig(length=shape.length))
    longer = shape.length
    while max(2, shape.vocab_size) ** longer < total:
        longer += 1
    return (
        f"the code tree is full: length={shape.length} and vocab_size={shape.vocab_size} leave"
        f" {shape.capacity(0) - (total - new):,} free codes and {new:,} are needed; tokenize all identities again:"
        f" length={shape.length} with vocab_size={wider.vocab_size}, or length={longer}, holds all {total:,}"
    )


def _sum_level(prefix_N: Integers, vectors_ND: Floats) -> Level:
    """Return the nodes of these packed prefixes with the sums of their members."""
    packed_P, node_N, size_P = np.unique(prefix_N, return_inverse=True, return_counts=True)
    return Level(packed_P, node_N, size_P, sum_rows(vectors_ND, node_N, len(packed_P)))


def _token_directions(nodes: Level, token_N: npt.NDArray[np.integer], vectors_ND: Floats, num_tokens: int) -> Floats:
    """Return, for each token of this level, the unit mean residual (member - node mean) of the identities with it."""
    flat = np.bincount(nodes.node_N * num_tokens + token_N, minlength=len(nodes.size_P) * num_tokens)
    count_PK = flat.reshape(-1, num_tokens)
    expected_KD = count_PK.T.astype(np.float32) @ nodes.means()
    return unit_rows(sum_rows(vectors_ND, token_N, num_tokens) - expected_KD)


def _fit(vectors_MD: Floats, prefix_M: Integers, nodes: Level, children: Level, direction_KD: Floats) -> Floats:
    """Return how well each new identity fits each child of its node.

    For a child with members this is the cosine to their mean. For an empty child it is the product of the identity's
    residual with the direction of the token, lowered by `EMPTY_PENALTY`.
    """
    num_tokens, dimension = direction_KD.shape
    mean_PD, direction_CD = nodes.means(), unit_rows(children.sum_PD)
    fit_MK: Floats = np.empty((len(vectors_MD), num_tokens), dtype=np.float32)
    for block in chunks(len(vectors_MD), num_tokens * dimension):
        node_B, has_members_B = nodes.find(prefix_M[block])
        residual_BD = vectors_MD[block] - mean_PD[node_B] * has_members_B[:, None]
        fit_MK[block] = residual_BD @ direction_KD.T - EMPTY_PENALTY
        if direction_CD.size:
            child_BK, used_BK = children.find(prefix_M[block, None] * num_tokens + np.arange(num_tokens))
            cosine_BK = np.einsum("bd,bkd->bk", vectors_MD[block], direction_CD[child_BK])
            fit_MK[block] = np.where(used_BK, cosine_BK, fit_MK[block])
    return fit_MK


def _descend(fit_MK: Floats, prefix_M: Integers, children: Level, capacity: int) -> Integers:
    """Return the prefixes of the new identities, extended by the token of the child that each goes to."""
    num_tokens = fit_MK.shape[1]
    packed_P, node_M = np.unique(prefix_M, return_inverse=True)
    child_PK, used_PK = children.find(packed_P[:, None] * num_tokens + np.arange(num_tokens))
    free_PK = capacity - np.where(used_PK, children.size_P[child_PK], 0)
    longer_M: Integers = prefix_M * num_tokens + _choose_children(fit_MK, node_M, free_PK)
    return longer_M


def _choose_children(fit_MK: Floats, node_M: Integers, free_PK: Integers) -> Integers:
    """Assign every new identity to a child of its node that has a free code; return the tokens.

    In each round every unassigned identity requests its best child that is not full. Where requests exceed the free
    codes, the identities whose second choice is worst by the largest margin go first. A round assigns all identities
    or fills at least one child.
    """
    num_tokens, free_PK = free_PK.shape[1], free_PK.copy()
    token_M, waiting_W = np.full(len(fit_MK), -1, dtype=np.int64), np.arange(len(fit_MK))
    while len(waiting_W):
        open_WK = free_PK[node_M[waiting_W]] > 0
        best_W, margin_W = _best_and_margin(np.where(open_WK, fit_MK[waiting_W], -np.inf))
        child_W = node_M[waiting_W] * num_tokens + best_W
        order_W = np.lexsort((-margin_W, child_W))
        sorted_W = child_W[order_W]
        rank_W = np.arange(len(order_W)) - np.searchsorted(sorted_W, sorted_W)
        accepted = order_W[rank_W < free_PK.ravel()[sorted_W]]
        token_M[waiting_W[accepted]] = best_W[accepted]
        free_PK -= np.bincount(child_W[accepted], minlength=free_PK.size).reshape(free_PK.shape)
        waiting_W = waiting_W[token_M[waiting_W] < 0]
    return token_M


def _best_and_margin(fit_WK: Floats) -> tuple[Integers, Floats]:
    """Return the best child of each row and its lead over the second best."""
    best_W = fit_WK.argmax(axis=1)
    if fit_WK.shape[1] == 1:
        return best_W, np.zeros(len(fit_WK))
    top_W2 = np.partition(fit_WK, -2, axis=1)[:, -2:]
    return best_W, top_W2[:, 1] - top_W2[:, 0]
