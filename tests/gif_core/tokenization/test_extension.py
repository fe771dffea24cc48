import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gif_core.tokenization import Codes, CodeShape, check_codes, extend, unpack_codes
from gif_core.tokenization.extension import _choose_children

Vectors = NDArray[np.float32]


def unit(vectors: NDArray[np.floating]) -> Vectors:
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def random_codes(shape: CodeShape, count: int, seed: int) -> Codes:
    return unpack_codes(np.random.default_rng(seed).permutation(shape.capacity(0))[:count], shape)


@st.composite
def tables(draw: st.DrawFn) -> tuple[CodeShape, Codes, Vectors, Vectors]:
    """Any table with any number of new identities that it can hold: duplicates, equal vectors and zeros among them."""
    shape = CodeShape(draw(st.integers(1, 4)), draw(st.integers(1, 5)))
    old = draw(st.integers(1, shape.capacity(0)))
    new = draw(st.integers(0, shape.capacity(0) - old))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    kinds = {
        "any": rng.normal(size=(old + new, 6)),
        "equal": np.ones((old + new, 6)),
        "few": rng.normal(size=(2, 6))[rng.integers(0, 2, old + new)],
        "zero": np.zeros((old + new, 6)),
        "opposite": np.outer(rng.choice([-1, 1], old + new), np.ones(6)),
    }
    vectors = unit(kinds[draw(st.sampled_from(sorted(kinds)))])
    return shape, random_codes(shape, old, int(rng.integers(99))), vectors[:old], vectors[old:]


@settings(max_examples=150)
@given(table=tables())
def test_old_and_new_codes_together_are_unique_in_range_and_within_capacity(
    table: tuple[CodeShape, Codes, Vectors, Vectors],
) -> None:
    shape, codes, vectors, new_vectors = table
    before = codes.copy()
    new_codes = extend(codes, shape, vectors, new_vectors)
    assert new_codes.shape == (len(new_vectors), shape.length)
    check_codes(np.concatenate([codes, new_codes]), shape)
    assert np.array_equal(codes, before), "codes that were given never change"


def test_the_same_input_gives_the_same_codes() -> None:
    shape, rng = CodeShape(4, 6), np.random.default_rng(0)
    codes, vectors = random_codes(shape, 700, 0), unit(rng.normal(size=(1200, 16)))
    once = extend(codes, shape, vectors[:700], vectors[700:])
    assert np.array_equal(once, extend(codes, shape, vectors[:700], vectors[700:]))


def clear_tree(shape: CodeShape, members: int) -> tuple[Codes, Vectors]:
    """Every node has a direction near that of its parent, every leaf `members` identities near its own."""
    rng = np.random.default_rng(1)
    leaves = unpack_codes(
        np.arange(shape.vocab_size ** (shape.length - 1)), CodeShape(shape.length - 1, shape.vocab_size)
    )
    centre = np.zeros((len(leaves), 32))
    for place in range(shape.length - 1):
        _, node = np.unique(leaves[:, : place + 1], axis=0, return_inverse=True)
        centre += rng.normal(size=(node.max() + 1, 32))[node] * 0.4**place
    codes = np.concatenate([np.repeat(leaves, members, 0), np.tile(np.arange(members), len(leaves))[:, None]], 1)
    noise = 0.02 * rng.normal(size=(len(codes), 32))
    return codes.astype(np.int32), unit(np.repeat(centre, members, 0) + noise)


def test_a_new_identity_joins_the_leaf_of_its_duplicate_when_there_is_room() -> None:
    shape = CodeShape(3, 5)
    codes, vectors = clear_tree(shape, 3)
    doubles = np.random.default_rng(2).permutation(25) * 3
    new = extend(codes, shape, vectors[:], vectors[doubles])
    assert np.array_equal(new[:, :2], codes[doubles, :2])


def test_a_full_leaf_overflows_to_the_rest_of_its_parent() -> None:
    shape = CodeShape(3, 5)
    codes, vectors = clear_tree(shape, 3)
    new = extend(codes, shape, vectors, np.repeat(vectors[:1], 10, 0))
    assert np.array_equal(new[:, 0], np.zeros(10)), "25 codes below 0, 15 of them taken"
    assert (new[:, 1] == 0).sum() == 2, "the two free codes of the nearest leaf are taken first"


def test_a_free_token_is_chosen_by_its_direction_in_other_nodes() -> None:
    shape, rng = CodeShape(2, 4), np.random.default_rng(3)
    parents, tokens = rng.normal(size=(4, 64)), rng.normal(size=(4, 64))
    all_rows = unpack_codes(np.arange(16), shape)
    vectors = unit(3 * unit(parents)[all_rows[:, 0]] + unit(tokens)[all_rows[:, 1]])
    absent = np.array([2, 7, 9])
    there = np.setdiff1d(np.arange(16), absent)
    assert np.array_equal(extend(all_rows[there], shape, vectors[there], vectors[absent]), all_rows[absent])


def test_identities_with_the_worst_second_choice_go_first() -> None:
    fit = np.array([[0.9, 0.8], [0.8, 0.0], [0.85, 0.8]], dtype=np.float32)
    assert _choose_children(fit, np.zeros(3, np.int64), np.array([[1, 2]])).tolist() == [1, 0, 1]


def test_the_error_of_a_full_tree_names_shapes_that_hold_all_identities() -> None:
    shape, vectors = CodeShape(3, 4), unit(np.random.default_rng(0).normal(size=(130, 8)))
    with pytest.raises(
        ValueError, match=r"full: length=3 and vocab_size=4 leave 4 free codes and 70 are needed"
    ) as error:
        extend(random_codes(shape, 60, 0), shape, vectors[:60], vectors[60:])
    assert "length=3 with vocab_size=6, or length=4, holds all 130" in str(error.value)


def test_wrong_vectors_are_refused() -> None:
    shape, vectors = CodeShape(3, 4), unit(np.random.default_rng(0).normal(size=(20, 8)))
    codes = random_codes(shape, 10, 0)
    with pytest.raises(ValueError, match="10 codes and 9 vectors"):
        extend(codes, shape, vectors[:9], vectors[10:])
    with pytest.raises(ValueError, match="those of the table"):
        extend(codes, shape, vectors[:10], vectors[10:, :5])
    with pytest.raises(ValueError, match="new identities are not finite"):
        extend(codes, shape, vectors[:10], vectors[10:] * np.nan)
