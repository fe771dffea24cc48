"""Token alignment: one value of a token stands for a similar direction below every parent.

The index of a child within its parent is arbitrary, so the children of every parent are renumbered: they are matched
one to one to a codebook of v residuals (child mean - parent mean) that all parents of a level share. Codes stay unique
and within capacity, because indices are only permuted within a parent.
"""

# Shapes: N identities, D dimensions, L code length, V token values (v), P parents of a level, C children of a level,
# S children that have siblings, A children that have none, B children of a block.

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from gif_core.tokenization.codes import Codes, CodeShape, Rows, Vectors
from gif_core.tokenization.prefix_sums import PrefixLevel, in_blocks

Matrix = npt.NDArray[np.float32]

ROUNDS = 10
"""Rounds of matching and re-estimation when a codebook is learned."""
PARENTS_SAMPLED = 2048
"""Parents whose children a codebook is learned from."""


@dataclass(frozen=True)
class AlignmentStep:
    """Progress of alignment by level; the last step carries the codes."""

    level: int
    length: int
    explained: float
    """Share of this level's residual energy that the shared codebook explains."""
    explained_random: float
    """The same share when children are numbered at random and the codebook is optimal for that numbering."""
    codes_NL: Codes | None = None


@dataclass(frozen=True)
class _Children:
    """The children of all parents of one level, sorted by parent."""

    vectors_ND: Vectors
    """Holds the mean of each child: the means of the next level, or the vectors of the identities."""
    row_C: Rows
    """The row of each child in it."""
    parent_C: Rows
    mean_PD: Matrix
    """The means of the parents."""
    child_N: Rows
    """The child that each identity belongs to."""

    def split_by_siblings(self) -> tuple[Rows, Rows]:
        """Return the children that have siblings and those that have none."""
        count_C = np.bincount(self.parent_C)[self.parent_C]
        return np.flatnonzero(count_C > 1), np.flatnonzero(count_C == 1)

    def residuals(self, chosen_S: Rows) -> Iterator[tuple[slice, Matrix]]:
        """Yield child mean - parent mean of the chosen children, block by block."""
        for block, vectors_BD in in_blocks(self.vectors_ND, self.row_C[chosen_S]):
            yield block, vectors_BD - self.mean_PD[self.parent_C[chosen_S[block]]]


def align_tokens(
    vectors_ND: Vectors, codes_NL: Codes, levels: list[PrefixLevel], shape: CodeShape, *, seed: int
) -> Iterator[AlignmentStep]:
    """Renumber the children of every parent, level by level; `levels` are the sums of `codes_NL` by prefix.

    A child without siblings has a residual of zero: its token is the value closest to what the codebooks of the levels
    above leave of its mean.
    """
    aligned_NL = np.zeros_like(codes_NL)
    codebooks: list[Matrix] = []
    for level, parents in enumerate(levels):
        rng = np.random.default_rng([seed, level])
        with threadpool_limits(1):
            children = _children(vectors_ND, levels, level)
            several_S, alone_A = children.split_by_siblings()
            parent_S, parent_A = children.parent_C[several_S], children.parent_C[alone_A]
            codebook_VD = _learn_codebook(children, several_S, shape.vocab_size, rng)
            token_S = _match(_all_gains(children, several_S, codebook_VD), parent_S)
            centred_AD = children.mean_PD[parent_A] - levels[0].means()
            prefix_AL = aligned_NL[parents.first_P[parent_A], :level]
            token_A = _nearest_to_remainder(centred_AD, prefix_AL, codebooks, codebook_VD)
            random_S = _random_tokens(parent_S, shape.vocab_size, rng)
            explained, explained_random = _explained(children, several_S, [token_S, random_S], shape.vocab_size)
        token_C = np.zeros(len(children.parent_C), dtype=np.int64)
        token_C[several_S], token_C[alone_A] = token_S, token_A
        aligned_NL[:, level] = token_C[children.child_N]
        codebooks.append(codebook_VD)
        done = aligned_NL if level == shape.length - 1 else None
        yield AlignmentStep(level + 1, shape.length, explained, explained_random, done)


def _children(vectors_ND: Vectors, levels: list[PrefixLevel], level: int) -> _Children:
    """Return the children of a level: the prefixes of the next one, or the identities below the last."""
    parents = levels[level]
    if level + 1 < len(levels):
        below = levels[level + 1]
        return _Children(below.means(), np.arange(len(below.size_P)), below.parent_P, parents.means(), below.node_N)
    order_N = parents.node_N.argsort(kind="stable")
    child_N = np.empty_like(order_N)
    child_N[order_N] = np.arange(len(order_N))
    return _Children(vectors_ND, order_N, parents.node_N[order_N], parents.means(), child_N)


def _learn_codebook(children: _Children, several_S: Rows, num_values: int, rng: np.random.Generator) -> Matrix:
    """Learn the v residuals that a sample of parents share: match their children to them, take the means, repeat."""
    codebook_VD = np.zeros((num_values, children.mean_PD.shape[1]), dtype=np.float32)
    if not len(several_S):
        return codebook_VD
    parents = np.unique(children.parent_C[several_S])
    sampled = rng.choice(parents, min(len(parents), PARENTS_SAMPLED), replace=False)
    chosen_S = several_S[np.isin(children.parent_C[several_S], sampled)]
    residual_SD = np.concatenate([residual_BD for _, residual_BD in children.residuals(chosen_S)])
    parent_S = children.parent_C[chosen_S]
    start = residual_SD[parent_S == np.bincount(parent_S).argmax()]
    codebook_VD[: len(start)] = start
    for _ in range(ROUNDS):
        token_S = _match(_gains(residual_SD, codebook_VD), parent_S)
        codebook_VD = _means(residual_SD, token_S, num_values)
    return codebook_VD


def _all_gains(children: _Children, chosen_S: Rows, codebook_VD: Matrix) -> Matrix:
    """Return `_gains` of the chosen children, computed block by block."""
    gain_SV = np.empty((len(chosen_S), len(codebook_VD)), dtype=np.float32)
    for block, residual_BD in children.residuals(chosen_S):
        gain_SV[block] = _gains(residual_BD, codebook_VD)
    return gain_SV


def _gains(residual_SD: Matrix, codebook_VD: Matrix) -> Matrix:
    """Return half the energy that subtracting each codebook value removes from each residual: r.c - |c|^2 / 2."""
    gain_SV: Matrix = residual_SD @ codebook_VD.T - (codebook_VD**2).sum(axis=1) / 2
    return gain_SV


def _match(gain_SV: Matrix, parent_S: Rows) -> Rows:
    """Assign values to the children of each parent, each value at most once, with the largest total gain.

    Children are sorted by parent.
    """
    token_S = np.zeros(len(parent_S), dtype=np.int64)
    for start, end in pairwise([*_parent_starts(parent_S).tolist(), len(parent_S)]):
        token_S[start:end] = linear_sum_assignment(gain_SV[start:end], maximize=True)[1]
    return token_S


def _nearest_to_remainder(centred_AD: Matrix, prefix_AL: Codes, codebooks: list[Matrix], codebook_VD: Matrix) -> Rows:
    """Return the value closest to what the tokens of the prefix leave of each vector."""
    for earlier_VD, token_A in zip(codebooks, prefix_AL.T, strict=True):
        centred_AD -= earlier_VD[token_A]
    nearest_A: Rows = _gains(centred_AD, codebook_VD).argmax(axis=1)
    return nearest_A


def _random_tokens(parent_S: Rows, num_values: int, rng: np.random.Generator) -> Rows:
    """Draw values for the children of each parent, without repetition within a parent."""
    start_P = _parent_starts(parent_S)
    value_PV = rng.random((len(start_P), num_values)).argsort(axis=1)
    size_P = np.diff(start_P, append=len(parent_S))
    index_S = np.arange(len(parent_S)) - np.repeat(start_P, size_P)
    token_S: Rows = value_PV[np.repeat(np.arange(len(start_P)), size_P), index_S]
    return token_S


def _parent_starts(parent_S: Rows) -> Rows:
    """Return the position of the first child of each parent."""
    return np.flatnonzero(np.diff(parent_S, prepend=-1))


def _explained(children: _Children, chosen_S: Rows, numberings: list[Rows], num_values: int) -> list[float]:
    """Return, for each numbering, the share of residual energy that the mean residuals of its values explain."""
    sums = [np.zeros((num_values, children.mean_PD.shape[1])) for _ in numberings]
    energy = 0.0
    for block, residual_BD in children.residuals(chosen_S):
        energy += float((residual_BD**2).sum(dtype=np.float64))
        for sum_VD, token_S in zip(sums, numberings, strict=True):
            sum_VD += _sums(residual_BD, token_S[block], num_values)
    counts = [np.maximum(np.bincount(token_S, minlength=num_values), 1) for token_S in numberings]
    kept = [float(((sum_VD**2).sum(axis=1) / count_V).sum()) for sum_VD, count_V in zip(sums, counts, strict=True)]
    return [share / energy if energy else 1.0 for share in kept]


def _means(residual_SD: Matrix, token_S: Rows, num_values: int) -> Matrix:
    """Return the mean residual of each value."""
    count_V = np.maximum(np.bincount(token_S, minlength=num_values), 1).astype(np.float32)
    return _sums(residual_SD, token_S, num_values) / count_V[:, None]


def _sums(residual_SD: Matrix, token_S: Rows, num_values: int) -> Matrix:
    """Return the summed residuals of each value."""
    member_VS = np.zeros((num_values, len(token_S)), dtype=np.float32)
    member_VS[token_S, np.arange(len(token_S))] = 1
    return member_VS @ residual_SD
