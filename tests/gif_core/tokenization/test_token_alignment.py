"""Claims about aligned tokens and the means they rest on."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gif_core.tokenization import (
    Codes,
    CodeShape,
    align_tokens,
    check_codes,
    code_shape,
    draw_codes,
    mean_cosines,
    sum_by_prefix,
    tokenize,
)
from gif_core.tokenization.token_alignment import AlignmentStep
from schemas.tokenization import TokenizationConfig

Vectors = npt.NDArray[np.float32]


def unit(count: int, dimension: int, seed: int = 0) -> Vectors:
    rows = np.random.default_rng(seed).normal(size=(count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def aligned(vectors: Vectors, codes: Codes, shape: CodeShape, seed: int = 0) -> tuple[Codes, list[AlignmentStep]]:
    steps = list(align_tokens(vectors, codes, sum_by_prefix(vectors, codes, shape), shape, seed=seed))
    assert steps[-1].codes_NL is not None
    return steps[-1].codes_NL, steps


def composed(shape: CodeShape, dimension: int, seed: int = 0) -> tuple[Vectors, Codes]:
    """One identity for every code, each the sum of one direction a token, shared by all parents."""
    rng = np.random.default_rng(seed)
    codes = np.stack(np.unravel_index(np.arange(shape.capacity(0)), (shape.vocab_size,) * shape.length), axis=1)
    directions = [0.3**level * rng.normal(size=(shape.vocab_size, dimension)) for level in range(shape.length)]
    rows = sum(direction[token] for direction, token in zip(directions, codes.T, strict=True))
    return rows.astype(np.float32), codes.astype(np.int32)


def shuffled(codes: Codes, shape: CodeShape, seed: int = 0) -> Codes:
    """The same tree with the children of every parent numbered at random."""
    rng = np.random.default_rng(seed)
    result = codes.copy()
    for level in range(shape.length):
        for prefix in np.unique(codes[:, :level], axis=0):
            rows = (codes[:, :level] == prefix).all(axis=1)
            result[rows, level] = rng.permutation(shape.vocab_size)[codes[rows, level]]
    return result


def test_directions_that_all_parents_share_are_found_again() -> None:
    shape = CodeShape(3, 6)
    vectors, codes = composed(shape, 24)
    found, steps = aligned(vectors, shuffled(codes, shape), shape)
    for level in range(3):
        pairs = np.unique(np.stack([codes[:, level], found[:, level]], axis=1), axis=0)
        assert len(pairs) == shape.vocab_size
    assert [round(step.explained, 4) for step in steps] == [1, 1, 1]
    assert all(step.explained_random < 0.5 for step in steps[1:])


@settings(max_examples=40)
@given(
    count=st.integers(1, 150),
    length=st.integers(1, 5),
    distinct=st.integers(1, 150),
    atomic=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_alignment_only_renumbers_children_inside_their_parents(
    count: int, length: int, distinct: int, atomic: bool, seed: int
) -> None:
    """Hence codes stay unique and clusters within capacity: identities that shared a prefix still do."""
    shape = code_shape(count, TokenizationConfig(length=length))
    vectors = unit(distinct, 5, seed)[np.random.default_rng(seed).integers(distinct, size=count)]
    codes = draw_codes(count, shape, seed=seed)
    if not atomic:
        *_, last = tokenize(vectors, shape, iterations=3, seed=seed, workers=1)
        assert last.codes_NL is not None
        codes = last.codes_NL
    found, _ = aligned(vectors, codes, shape, seed)
    check_codes(found, shape)
    for level in range(1, length + 1):
        before, after = (np.unique(each[:, :level], axis=0, return_inverse=True)[1] for each in (codes, found))
        assert len(np.unique(np.stack([before, after]), axis=1).T) == before.max() + 1 == after.max() + 1


@pytest.mark.parametrize("value", range(6))
def test_an_only_child_takes_the_value_that_others_with_its_direction_have(value: int) -> None:
    shape = CodeShape(3, 6)
    vectors, codes = composed(shape, 24)
    cousin = (codes[:, 0] == 2) & (codes[:, 1] == 3)
    keep = ~cousin | (codes[:, 2] == value)
    found, _ = aligned(vectors[keep], codes[keep], shape)
    assert len(np.unique(found[codes[keep, 2] == value, 2])) == 1


def test_sums_by_prefix_are_the_sums_of_the_identities_that_have_it() -> None:
    vectors, shape = unit(300, 7), CodeShape(3, 7)
    codes = draw_codes(300, shape, seed=0)
    levels = sum_by_prefix(vectors, codes, shape)
    assert [len(level.size_P) for level in levels] == [len(np.unique(codes[:, :j], axis=0)) for j in range(3)]
    for j, level in enumerate(levels):
        for node in range(len(level.size_P)):
            members = (codes[:, :j] == codes[level.first_P[node], :j]).all(axis=1)
            np.testing.assert_allclose(level.sum_PD[node], vectors[members].sum(axis=0), atol=1e-4)
            assert level.size_P[node] == members.sum()
            np.testing.assert_array_equal(level.node_N[members], node)
    assert mean_cosines(levels)[0] == pytest.approx(np.linalg.norm(vectors.mean(axis=0)), rel=1e-4)
