"""Aligned tokens: one value of a token means a similar direction below every parent.

The index of a child inside its parent is free, so every parent's children are matched one to one to a codebook of v
residual directions (child mean - parent mean) that all parents of a level share. Uniqueness and the capacity bound
stay as they were: indices only change places inside a parent.

Shapes: N identities, D dimensions, L code length, V values of a token, P parents, C children of a level.
"""

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
"""Rounds of matching and re-estimation of a codebook, on a sample of the parents."""
PARENTS_SAMPLED = 2048


@dataclass(frozen=True)
class AlignmentStep:
    """Progress of alignment by level; the last step carries the codes."""

    level: int
    length: int
    explained: float
    """The share of this level's residual energy that the shared codebook explains."""
    explained_by_chance: float
    """The same share when children are numbered at random and the codebook is their best."""
    codes_NL: Codes | None = None


@dataclass(frozen=True)
class _Children:
    """The children of all parents of one level, sorted by parent."""

    vectors_ND: Vectors
    """Where the mean of a child is: the means of the next level, or the identities themselves."""
    source_C: Rows
    """Its row there."""
    parent_C: Rows
    mean_PD: Matrix
    """The means of the parents."""
    child_N: Rows
    """The child each identity belongs to."""

    def count_siblings(self) -> Rows:
        """How many children the parent of each has."""
        return np.bincount(self.parent_C)[self.parent_C]

    def residuals(self, chosen: Rows) -> Iterator[tuple[slice, Matrix]]:
        """Child mean - parent mean of the chosen children, block by block."""
        for block, vectors_BD in in_blocks(self.vectors_ND, self.source_C[chosen]):
            yield block, vectors_BD - self.mean_PD[self.parent_C[chosen[block]]]


def align_tokens(
    vectors_ND: Vectors, codes_NL: Codes, levels: list[PrefixLevel], shape: CodeShape, *, seed: int
) -> Iterator[AlignmentStep]:
    """Renumber the children of every parent; `levels` are the sums of `codes_NL` by prefix.

    An only child has no residual: it takes the value nearest to what the codebooks so far leave of it.
    """
    aligned_NL = np.zeros_like(codes_NL)
    codebooks: list[Matrix] = []
    for level, parents in enumerate(levels):
        rng = np.random.default_rng([seed, level])
        with threadpool_limits(1):
            children = _children(vectors_ND, levels, level)
            count_C = children.count_siblings()
            several, only = np.flatnonzero(count_C > 1), np.flatnonzero(count_C == 1)
            codebook_VD = _learn_codebook(children, several, shape.vocab_size, rng)
            token_C = np.zeros(len(children.parent_C), dtype=np.int64)
            token_C[several] = _match(_score(children, several, codebook_VD), children.parent_C[several])
            before_SL = aligned_NL[parents.first_P[children.parent_C[only]], :level]
            rest_SD = children.mean_PD[children.parent_C[only]] - levels[0].means()
            token_C[only] = _continue_alone(rest_SD, before_SL, codebooks, codebook_VD)
            probability_C = _number_at_random(children.parent_C[several], shape.vocab_size, rng)
            explained, chance = _explained(children, several, [token_C[several], probability_C], shape.vocab_size)
        aligned_NL[:, level] = token_C[children.child_N]
        codebooks.append(codebook_VD)
        done = aligned_NL if level == shape.length - 1 else None
        yield AlignmentStep(level + 1, shape.length, explained, chance, done)


def _children(vectors_ND: Vectors, levels: list[PrefixLevel], level: int) -> _Children:
    parents = levels[level]
    if level + 1 < len(levels):
        below = levels[level + 1]
        every = np.arange(len(below.size_P))
        return _Children(below.means(), every, below.parent_P, parents.means(), below.node_N)
    order_N = parents.node_N.argsort(kind="stable")
    child_N = np.empty_like(order_N)
    child_N[order_N] = np.arange(len(order_N))
    return _Children(vectors_ND, order_N, parents.node_N[order_N], parents.means(), child_N)


def _learn_codebook(children: _Children, several: Rows, num_values: int, rng: np.random.Generator) -> Matrix:
    """The v residuals that some of the parents share: match their children to it, take the means, repeat."""
    dimension = children.mean_PD.shape[1]
    codebook_VD = np.zeros((num_values, dimension), dtype=np.float32)
    if not len(several):
        return codebook_VD
    parents = np.unique(children.parent_C[several])
    sampled = rng.choice(parents, min(len(parents), PARENTS_SAMPLED), replace=False)
    chosen = several[np.isin(children.parent_C[several], sampled)]
    residual_CD = np.concatenate([residual_BD for _, residual_BD in children.residuals(chosen)])
    parent_C = children.parent_C[chosen]
    start = residual_CD[parent_C == np.bincount(parent_C).argmax()]
    codebook_VD[: len(start)] = start
    for _ in range(ROUNDS):
        token_C = _match(_scores(residual_CD, codebook_VD), parent_C)
        codebook_VD = _means(residual_CD, token_C, num_values)
    return codebook_VD


def _score(children: _Children, chosen: Rows, codebook_VD: Matrix) -> Matrix:
    score_CV = np.empty((len(chosen), len(codebook_VD)), dtype=np.float32)
    for block, residual_BD in children.residuals(chosen):
        score_CV[block] = _scores(residual_BD, codebook_VD)
    return score_CV


def _scores(residual_CD: Matrix, codebook_VD: Matrix) -> Matrix:
    """How much energy each value of the codebook would take off each residual, halved."""
    scores_CV: Matrix = residual_CD @ codebook_VD.T - (codebook_VD**2).sum(axis=1) / 2
    return scores_CV


def _match(score_CV: Matrix, parent_C: Rows) -> Rows:
    """The best values for the children of each parent, no two of them the same; parents are in order."""
    token_C = np.zeros(len(parent_C), dtype=np.int64)
    start_P = np.flatnonzero(np.diff(parent_C, prepend=-1))
    for start, end in pairwise([*start_P.tolist(), len(parent_C)]):
        token_C[start:end] = linear_sum_assignment(score_CV[start:end], maximize=True)[1]
    return token_C


def _continue_alone(rest_SD: Matrix, before_SL: Codes, codebooks: list[Matrix], codebook_VD: Matrix) -> Rows:
    """The value nearest to what the tokens before leave of children without siblings."""
    for earlier_VD, before_S in zip(codebooks, before_SL.T, strict=True):
        rest_SD -= earlier_VD[before_S]
    nearest_S: Rows = _scores(rest_SD, codebook_VD).argmax(axis=1)
    return nearest_S


def _number_at_random(parent_C: Rows, num_values: int, rng: np.random.Generator) -> Rows:
    """Values drawn without repetition for the children of each parent."""
    start_P = np.flatnonzero(np.diff(parent_C, prepend=-1))
    return _place_in_parent(parent_C, start_P, rng.random((len(start_P), num_values)).argsort(axis=1))


def _place_in_parent(parent_C: Rows, start_P: Rows, value_PV: Rows) -> Rows:
    size_P = np.diff(start_P, append=len(parent_C))
    place_C = np.arange(len(parent_C)) - np.repeat(start_P, size_P)
    values: Rows = value_PV[np.repeat(np.arange(len(start_P)), size_P), place_C]
    return values


def _explained(children: _Children, chosen: Rows, numberings: list[Rows], num_values: int) -> list[float]:
    """The share of the residuals' energy that lies in the mean residual of each value, for each numbering."""
    dimension = children.mean_PD.shape[1]
    sums = [np.zeros((num_values, dimension)) for _ in numberings]
    energy = 0.0
    for block, residual_BD in children.residuals(chosen):
        energy += float((residual_BD**2).sum(dtype=np.float64))
        for sum_VD, token_C in zip(sums, numberings, strict=True):
            sum_VD += _sums(residual_BD, token_C[block], num_values)
    counts = [np.maximum(np.bincount(token_C, minlength=num_values), 1) for token_C in numberings]
    kept = [float(((sum_VD**2).sum(axis=1) / count_V).sum()) for sum_VD, count_V in zip(sums, counts, strict=True)]
    return [share / energy if energy else 1.0 for share in kept]


def _means(residual_CD: Matrix, token_C: Rows, num_values: int) -> Matrix:
    count_V = np.maximum(np.bincount(token_C, minlength=num_values), 1).astype(np.float32)
    return _sums(residual_CD, token_C, num_values) / count_V[:, None]


def _sums(residual_CD: Matrix, token_C: Rows, num_values: int) -> Matrix:
    member_VC = np.zeros((num_values, len(token_C)), dtype=np.float32)
    member_VC[token_C, np.arange(len(token_C))] = 1
    return member_VC @ residual_CD
