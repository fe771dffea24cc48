import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gif_core.tokenization import CodeIndex, Codes, CodeShape, pack_codes, unpack_codes

SHAPE = CodeShape(3, 4)
CODES: Codes = np.array([[0, 0, 0], [3, 1, 2], [0, 0, 1], [0, 2, 0], [3, 3, 3]], dtype=np.int32)


def some_codes(shape: CodeShape, count: int, seed: int) -> Codes:
    """Valid codes, all different, in no order."""
    return unpack_codes(np.random.default_rng(seed).permutation(shape.capacity(0))[:count], shape)


def test_codes_are_numbered_in_lexicographic_order() -> None:
    assert pack_codes(CODES, SHAPE).tolist() == [0, 54, 1, 8, 63]


def test_prefixes_are_numbered_too() -> None:
    assert pack_codes(CODES[:, :2], SHAPE).tolist() == [0, 13, 0, 2, 15]


@settings(max_examples=50)
@given(length=st.integers(1, 6), tokens=st.integers(1, 6), seed=st.integers(0, 99), share=st.floats(0, 1))
def test_identity_to_code_and_back_is_the_identity(length: int, tokens: int, seed: int, share: float) -> None:
    shape = CodeShape(length, tokens)
    codes = some_codes(shape, max(1, int(share * shape.capacity(0))), seed)
    index, all_rows = CodeIndex(codes, shape), np.arange(len(codes))
    assert np.array_equal(index.identities_of(index.codes_of(all_rows)), all_rows)
    every_code = unpack_codes(np.arange(shape.capacity(0)), shape)
    owner = index.identities_of(every_code)
    assert np.array_equal(np.sort(owner[owner >= 0]), all_rows)
    assert np.array_equal(index.codes_of(owner[owner >= 0]), every_code[owner >= 0])


def test_codes_near_63_bits_stay_distinct() -> None:
    shape = CodeShape(15, 18)
    codes = np.random.default_rng(0).integers(0, 18, (1000, 15)).astype(np.int32)
    assert np.array_equal(unpack_codes(pack_codes(codes, shape), shape), codes)
    assert np.array_equal(CodeIndex(codes, shape).identities_of(codes), np.arange(1000))


def test_codes_of_no_identity_give_unknown() -> None:
    asked = np.array([[3, 1, 2], [1, 1, 1], [3, 3, 2], [0, 0, 0]])
    assert CodeIndex(CODES, SHAPE).identities_of(asked).tolist() == [1, -1, -1, 0]


@pytest.mark.parametrize("alias", [[0, 1, -4], [0, 0, 4], [-1, 4, 0], [3, 0, 6]])
def test_tokens_outside_the_vocabulary_match_no_code(alias: list[int]) -> None:
    assert pack_codes(np.array([alias]), SHAPE)[0] in pack_codes(unpack_codes(np.arange(64), SHAPE), SHAPE)
    full = CodeIndex(unpack_codes(np.arange(64), SHAPE), SHAPE)
    assert full.identities_of(np.array([alias])).tolist() == [-1]


def test_invalid_look_ups_are_refused() -> None:
    index = CodeIndex(CODES, SHAPE)
    with pytest.raises(ValueError, match="no identity 5: identities are 0 to 4"):
        index.codes_of(np.array([0, 5]))
    with pytest.raises(ValueError, match="no identity -1"):
        index.codes_of(np.array([-1]))
    with pytest.raises(ValueError, match="a code has 3 tokens"):
        index.identities_of(np.array([[1, 2]]))
