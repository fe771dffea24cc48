"""Structured codes keep the neighbourhoods of code vectors, unlike atomic codes; so do codes of added identities."""

import numpy as np
import pytest
from numpy.typing import NDArray

from gif_core.tokenization import Codes, CodeShape, check_codes, code_quality, extend, tokenize, unpack_codes
from gif_core.tokenization.quality import nearest_neighbours

Vectors = NDArray[np.float32]
SHAPE = CodeShape(4, 7)
IDENTITIES, NEW = 1900, 190


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    """Clusters of identities with sub-clusters, in 48 dimensions."""
    rng = np.random.default_rng(0)
    cluster, part = rng.integers(0, 10, IDENTITIES + NEW), rng.integers(0, 8, IDENTITIES + NEW)
    broad, narrow = rng.normal(size=(10, 48)), rng.normal(size=(10, 8, 48))
    mixed = broad[cluster] + 0.7 * narrow[cluster, part] + 0.5 * rng.normal(size=(IDENTITIES + NEW, 48))
    return (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32)


def make_codes(vectors: Vectors, shape: CodeShape = SHAPE) -> Codes:
    *_, last = tokenize(vectors, shape, iterations=20, seed=0)
    assert last.codes_NL is not None
    return last.codes_NL


def share_prefix(codes: Codes, rows: NDArray[np.int64], nearest: NDArray[np.int64], tokens: int) -> float:
    """Return the share of neighbours with the same first tokens."""
    same = codes[nearest, :tokens] == codes[rows, None, :tokens]
    return float(same.all(axis=2).mean())


def test_neighbours_share_prefixes_of_structured_codes_far_more_often_than_of_atomic_ones(vectors: Vectors) -> None:
    structured = code_quality(make_codes(vectors), SHAPE, vectors)["neighbours_together"].to_pylist()
    random = unpack_codes(np.random.default_rng(1).permutation(SHAPE.capacity(0))[: len(vectors)], SHAPE)
    atomic = code_quality(random, SHAPE, vectors)
    expected = [1 / 7, 1 / 49, 1 / 343]
    assert atomic["neighbours_together"].to_pylist() == pytest.approx(expected, rel=0.3)
    for level, factor in enumerate((4, 15, 40)):
        assert structured[level] > factor * atomic["random_together"][level].as_py()


def added_and_tokenized_together(vectors: Vectors, shape: CodeShape) -> list[tuple[float, float]]:
    """Return the shares of neighbours with a common prefix: of added identities, and if all are tokenized at once."""
    old = make_codes(vectors[:IDENTITIES], shape)
    extended = np.concatenate([old, extend(old, shape, vectors[:IDENTITIES], vectors[IDENTITIES:])])
    check_codes(extended, shape)
    together, added = make_codes(vectors, shape), np.arange(IDENTITIES, IDENTITIES + NEW)
    nearest = nearest_neighbours(vectors, added)
    return [
        tuple(share_prefix(codes, added, nearest, tokens) for codes in (extended, together)) for tokens in (1, 2, 3)
    ]


def test_added_identities_share_prefixes_with_neighbours_far_above_chance_in_a_nearly_full_tree(
    vectors: Vectors,
) -> None:
    assert IDENTITIES / SHAPE.capacity(0) > 0.75
    for (added, _), factor, tokens in zip(
        added_and_tokenized_together(vectors, SHAPE), (3, 8, 15), (1, 2, 3), strict=True
    ):
        assert added > factor * 7.0**-tokens


def test_added_identities_share_prefixes_as_if_all_were_tokenized_at_once_in_a_tree_with_room(
    vectors: Vectors,
) -> None:
    for added, together in added_and_tokenized_together(vectors, CodeShape(4, 9))[:2]:
        assert added > 0.9 * together


def test_the_capacity_bound_costs_at_most_a_twentieth_of_the_objective_of_k_means(vectors: Vectors) -> None:
    quality = code_quality(make_codes(vectors), SHAPE, vectors)
    ratios = quality["bounded"].to_numpy() / quality["unbounded"].to_numpy()
    assert (ratios > 0.95).all()
    assert (ratios <= 1).all()
