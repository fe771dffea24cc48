"""Extension: free codes for new identities, near their neighbours; codes that are given never change.

Shapes: N identities of the table, M new ones, W of them still waiting, D dimensions, L code length, K = v children of
a node, P nodes of a level.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gif_core.tokenization.codes import Codes, CodeShape, Integers, check_codes, code_shape, pack_codes, unpack_codes
from gif_core.tokenization.prefix_sums import Floats, chunks, sum_rows, unit_rows
from schemas.tokenization import TokenizationConfig

LATER = 4.0
"""Taken from the fit to a child that nobody is in: such children come after all others."""


@dataclass(frozen=True)
class Level:
    """The nodes of one level that have members, in lexicographic order."""

    packed_P: Integers
    node_N: Integers
    """The node of each identity of the table."""
    size_P: Integers
    sum_PD: Floats
    """The sum of the members' vectors."""

    def find(self, packed: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Where these nodes are, and whether they have members at all."""
        place = np.minimum(np.searchsorted(self.packed_P, packed), len(self.packed_P) - 1)
        return place, self.packed_P[place] == packed


def extend(codes_NL: Codes, shape: CodeShape, vectors_ND: Floats, new_vectors_MD: Floats) -> Codes:
    """Codes of new identities: each goes down the tree to the child whose mean is nearest and has a free code.

    Rows are unit vectors. Identities that want a child with too little room are seated by what the next best child
    would cost them. A child that nobody is in is opened when the others are full, and the last token always is one:
    it is chosen by the mean residual (member minus node) that its value has in all nodes, which is what an aligned
    token means. The tree is walked level by level, all nodes at once; the bound below Eq. 6 holds throughout.
    """
    _check(codes_NL, shape, vectors_ND, new_vectors_MD)
    if shape.length == 1:
        free = np.setdiff1d(np.arange(shape.vocab_size), codes_NL)
        return unpack_codes(free[: len(new_vectors_MD)], shape)
    packed_N, packed_M = pack_codes(codes_NL, shape), np.zeros(len(new_vectors_MD), dtype=np.int64)
    nodes = _sum_level(np.zeros_like(packed_N), vectors_ND)
    for level in range(shape.length):
        # Children of the last level are single codes: nobody can join one, so their means are of no use.
        below_ND = vectors_ND if level + 1 < shape.length else vectors_ND[:, :0]
        children = _sum_level(packed_N // shape.capacity(level + 1), below_ND)
        direction_KD = _token_directions(nodes, codes_NL[:, level], vectors_ND, shape.vocab_size)
        fit_MK = _fit(new_vectors_MD, packed_M, nodes, children, direction_KD)
        packed_M = _descend(fit_MK, packed_M, children, shape.capacity(level + 1))
        nodes = children
    return unpack_codes(packed_M, shape)


def _check(codes_NL: Codes, shape: CodeShape, vectors_ND: Floats, new_vectors_MD: Floats) -> None:
    check_codes(codes_NL, shape)
    if len(vectors_ND) != len(codes_NL):
        raise ValueError(f"there are {len(codes_NL)} codes and {len(vectors_ND)} vectors: give one for each identity")
    if new_vectors_MD.ndim != 2 or new_vectors_MD.shape[1] != vectors_ND.shape[1]:
        raise ValueError(f"new vectors are of shape {new_vectors_MD.shape}, those of the table {vectors_ND.shape}")
    for name, vectors in (("the table", vectors_ND), ("new identities", new_vectors_MD)):
        if not np.isfinite(vectors).all():
            raise ValueError(f"the vectors of {name} are not finite")
    total = len(codes_NL) + len(new_vectors_MD)
    if total > shape.capacity(0):
        raise ValueError(_explain_full(shape, total, len(new_vectors_MD)))


def _explain_full(shape: CodeShape, total: int, new: int) -> str:
    wider = code_shape(total, TokenizationConfig(length=shape.length))
    longer = shape.length
    while max(2, shape.vocab_size) ** longer < total:
        longer += 1
    return (
        f"the code tree is full: length={shape.length} and vocab_size={shape.vocab_size} leave"
        f" {shape.capacity(0) - (total - new):,} free codes and {new:,} are needed; tokenize all identities again:"
        f" length={shape.length} with vocab_size={wider.vocab_size}, or length={longer}, holds all {total:,}"
    )


def _sum_level(packed_N: Integers, vectors_ND: Floats) -> Level:
    """The nodes that these prefixes make; the root when there is one prefix."""
    packed_P, node_N, size_P = np.unique(packed_N, return_inverse=True, return_counts=True)
    return Level(packed_P, node_N, size_P, sum_rows(vectors_ND, node_N, len(packed_P)))


def _token_directions(nodes: Level, token_N: npt.NDArray[np.integer], vectors_ND: Floats, num_tokens: int) -> Floats:
    """The unit mean residual (member minus mean of its node) of those who have each token at this level."""
    count_PK = np.bincount(nodes.node_N * num_tokens + token_N, minlength=len(nodes.size_P) * num_tokens)
    centre_PD = nodes.sum_PD / nodes.size_P[:, None]
    expected_KD = count_PK.reshape(-1, num_tokens).T.astype(np.float32) @ centre_PD
    return unit_rows(sum_rows(vectors_ND, token_N, num_tokens) - expected_KD)


def _fit(vectors_MD: Floats, packed_M: Integers, nodes: Level, children: Level, direction_KD: Floats) -> Floats:
    """How well new identities fit the children of their nodes.

    It is the cosine to a child that has members. The others come later, by how well the residual fits the token.
    """
    num_tokens, dimension = direction_KD.shape
    centre_PD, mean_CD = nodes.sum_PD / nodes.size_P[:, None], unit_rows(children.sum_PD)
    fit_MK: Floats = np.empty((len(vectors_MD), num_tokens), dtype=np.float32)
    for chosen in chunks(len(vectors_MD), num_tokens * dimension):
        place_W, inhabited_W = nodes.find(packed_M[chosen])
        residual_WD = vectors_MD[chosen] - centre_PD[place_W] * inhabited_W[:, None]
        fit_MK[chosen] = residual_WD @ direction_KD.T - LATER
        if mean_CD.size:
            place_WK, used_WK = children.find(packed_M[chosen, None] * num_tokens + np.arange(num_tokens))
            cosine_WK = np.einsum("wd,wkd->wk", vectors_MD[chosen], mean_CD[place_WK])
            fit_MK[chosen] = np.where(used_WK, cosine_WK, fit_MK[chosen])
    return fit_MK


def _descend(fit_MK: Floats, packed_M: Integers, children: Level, capacity: int) -> Integers:
    """The child that each new identity goes to."""
    num_tokens = fit_MK.shape[1]
    packed_P, node_M = np.unique(packed_M, return_inverse=True)
    place_PK, used_PK = children.find(packed_P[:, None] * num_tokens + np.arange(num_tokens))
    seats_PK = capacity - np.where(used_PK, children.size_P[place_PK], 0)
    below_M: Integers = packed_M * num_tokens + _seat(fit_MK, node_M, seats_PK)
    return below_M


def _seat(fit_MK: Floats, node_M: Integers, seats_PK: Integers) -> Integers:
    """A child with a free seat for all identities.

    In rounds: all ask for their best open child, and where too many ask, those are seated first who would lose most
    with their second. A round seats all identities or fills a child.
    """
    num_tokens = seats_PK.shape[1]
    token_M, free_S = np.full(len(fit_MK), -1, dtype=np.int64), seats_PK.reshape(-1).copy()
    waiting_W: Integers = np.arange(len(fit_MK))
    while len(waiting_W):
        open_WK = free_S.reshape(-1, num_tokens)[node_M[waiting_W]] > 0
        best_W, margin_W = _best_and_margin(np.where(open_WK, fit_MK[waiting_W], -np.inf))
        seat_W = node_M[waiting_W] * num_tokens + best_W
        order_W = np.lexsort((-margin_W, seat_W))
        sorted_W = seat_W[order_W]
        rank_W = np.arange(len(order_W)) - np.searchsorted(sorted_W, sorted_W)
        seated = order_W[rank_W < free_S[sorted_W]]
        token_M[waiting_W[seated]] = best_W[seated]
        free_S -= np.bincount(seat_W[seated], minlength=len(free_S))
        waiting_W = waiting_W[token_M[waiting_W] < 0]
    return token_M


def _best_and_margin(fit_WK: Floats) -> tuple[Integers, Floats]:
    """The best child of each row, and by how much it is better than the second."""
    best_W = fit_WK.argmax(axis=1)
    if fit_WK.shape[1] == 1:
        return best_W, np.zeros(len(fit_WK))
    top_W2 = np.partition(fit_WK, -2, axis=1)[:, -2:]
    return best_W, top_W2[:, 1] - top_W2[:, 0]
