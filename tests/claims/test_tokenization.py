"""The capacity bound that makes codes unique costs little, and structured codes keep neighbourhoods."""

from functools import cache

import numpy as np
import numpy.typing as npt

from gif_core.tokenization import (
    Codes,
    CodeShape,
    align_tokens,
    bounded_kmeans,
    draw_codes,
    mean_cosines,
    spherical_kmeans,
    sum_by_prefix,
    tokenize,
)
from gif_core.tokenization.assignment import assign_bounded
from gif_core.tokenization.kmeans import mean_directions

Vectors = npt.NDArray[np.float32]
SHAPE = CodeShape(3, 10)
IDENTITIES = 900
"""The tree is filled to .9, as for the paper's datasets."""


@cache
def identities(seed: int = 0) -> Vectors:
    """Unit rows in groups of unequal size, each of smaller groups."""
    rng = np.random.default_rng(seed)
    coarse, fine = rng.normal(size=(14, 32)), 0.7 * rng.normal(size=(120, 32))
    which = rng.choice(120, size=IDENTITIES, p=rng.dirichlet(np.full(120, 2.0)))
    rows = coarse[which % 14] + fine[which] + 0.5 * rng.normal(size=(IDENTITIES, 32))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@cache
def structured() -> Codes:
    *_, last = tokenize(identities(), SHAPE, iterations=20, seed=0)
    assert last.codes_NL is not None
    return last.codes_NL


def summed_cosine(vectors: Vectors, labels: npt.NDArray[np.int64]) -> float:
    own = mean_directions(vectors, labels, np.zeros((SHAPE.vocab_size, vectors.shape[1]), dtype=np.float32))[labels]
    return float((vectors * own).sum())


def share_of_neighbours_with_prefix(codes: Codes, length: int) -> float:
    """Return the share of the ten nearest neighbours of all identities with the same first tokens."""
    cosine = identities() @ identities().T
    np.fill_diagonal(cosine, -1)
    near = np.argsort(-cosine, axis=1)[:, :10]
    return float((codes[near, :length] == codes[:, None, :length]).all(axis=2).mean())


def test_plain_kmeans_breaks_the_bound() -> None:
    for seed in range(8):
        vectors = identities(seed)
        plain = (vectors @ spherical_kmeans(vectors, SHAPE.vocab_size, iterations=20, seed=0).T).argmax(axis=1)
        assert np.bincount(plain).max() > SHAPE.capacity(1)


def test_the_bound_costs_less_than_half_a_percent_of_the_objective() -> None:
    """Summed over several sets of identities, because local optima of k-means differ by more than the bound costs."""
    capacity, sums = SHAPE.capacity(1), np.zeros(2)
    for seed in range(8):
        vectors = identities(seed)
        plain_KD = spherical_kmeans(vectors, SHAPE.vocab_size, iterations=20, seed=seed)
        bounded_KD = bounded_kmeans(vectors, SHAPE.vocab_size, capacity=capacity, iterations=20, seed=seed)
        bounded = assign_bounded(vectors @ bounded_KD.T, capacity=capacity)
        sums += summed_cosine(vectors, bounded), summed_cosine(vectors, (vectors @ plain_KD.T).argmax(axis=1))
    assert sums[0] / sums[1] > 0.995


def test_aligned_tokens_explain_clearly_more_than_an_arbitrary_order() -> None:
    levels = sum_by_prefix(identities(), structured(), SHAPE)
    for step in list(align_tokens(identities(), structured(), levels, SHAPE, seed=0))[1:]:
        assert step.explained > 1.5 * step.explained_random


def test_neighbours_share_prefixes_far_more_often_than_with_atomic_codes() -> None:
    atomic = draw_codes(IDENTITIES, SHAPE, seed=0)
    assert share_of_neighbours_with_prefix(structured(), 1) > 4 * share_of_neighbours_with_prefix(atomic, 1)
    assert share_of_neighbours_with_prefix(structured(), 2) > 10 * share_of_neighbours_with_prefix(atomic, 2)


def test_identities_are_nearer_to_their_cluster_with_every_token() -> None:
    cosines = mean_cosines(sum_by_prefix(identities(), structured(), SHAPE))
    assert cosines == sorted(cosines)
    assert cosines[2] > mean_cosines(sum_by_prefix(identities(), draw_codes(IDENTITIES, SHAPE, seed=0), SHAPE))[2] * 1.5
