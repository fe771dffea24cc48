"""Claims about the shape of codes and how identities get them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gif_core.tokenization import (
    Codes,
    CodeShape,
    check_codes,
    code_shape,
    draw_codes,
    mean_cosines,
    sum_by_prefix,
    tokenize,
)
from schemas.tokenization import TokenizationConfig

PROJECT = Path(__file__).parents[3]


def unit(count: int, dimension: int, seed: int = 0) -> npt.NDArray[np.float32]:
    rows = np.random.default_rng(seed).normal(size=(count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def codes_of(vectors: npt.NDArray[np.float32], shape: CodeShape, seed: int = 0) -> Codes:
    *_, last = tokenize(vectors, shape, iterations=5, seed=seed)
    assert last.codes_NL is not None
    return last.codes_NL


@pytest.mark.parametrize(("identities", "expected"), [(85_742, 10), (205_990, 12), (617_970, 15), (2_059_906, 19)])
def test_vocab_size_at_length_five_is_that_of_the_paper(identities: int, expected: int) -> None:
    assert code_shape(identities, TokenizationConfig(length=5)) == CodeShape(5, expected)


@pytest.mark.parametrize(
    ("identities", "shape"),
    [
        (85_742, (4, 18)),
        (2_059_906, (5, 19)),
        (440, (3, 8)),
        (400, (2, 20)),
        (401, (3, 8)),
        (20, (1, 20)),
        (21, (2, 5)),
        (5, (1, 5)),
        (4, (1, 4)),
        (1, (1, 1)),
    ],
)
def test_default_length_is_the_smallest_with_at_most_twenty_values(identities: int, shape: tuple[int, int]) -> None:
    assert code_shape(identities, TokenizationConfig()) == CodeShape(*shape)


@given(identities=st.integers(1, 10**9), length=st.integers(1, 30))
def test_vocab_size_is_the_smallest_that_suffices(identities: int, length: int) -> None:
    shape = code_shape(identities, TokenizationConfig(length=length))
    assert shape.vocab_size**length >= identities
    assert shape.vocab_size == 1 or (shape.vocab_size - 1) ** length < identities


@pytest.mark.parametrize("root", [3, 10, 57, 1000])
def test_exact_powers_do_not_round_up(root: int) -> None:
    assert code_shape(root**5, TokenizationConfig(length=5)).vocab_size == root
    assert code_shape(root**5 + 1, TokenizationConfig(length=5)).vocab_size == root + 1


def test_codes_that_do_not_fit_an_integer_are_refused() -> None:
    with pytest.raises(ValueError, match="63 bits"):
        code_shape(10, TokenizationConfig(length=80))
    with pytest.raises(ValueError, match="0 identities"):
        code_shape(0, TokenizationConfig())


@settings(max_examples=60)
@given(data=st.data())
def test_codes_are_unique_in_range_and_within_capacity(data: st.DataObject) -> None:
    """Whatever the vectors, also when many are the same: checked here without the project's own check."""
    count = data.draw(st.integers(1, 150), label="identities")
    length = data.draw(st.integers(1, 5), label="length")
    distinct = data.draw(st.integers(1, count), label="distinct vectors")
    dimension = data.draw(st.integers(1, 8), label="dimension")
    seed = data.draw(st.integers(0, 1000), label="seed")
    shape = code_shape(count, TokenizationConfig(length=length))
    rows = np.random.default_rng(seed).integers(distinct, size=count)
    codes = codes_of(unit(distinct, dimension, seed)[rows], shape, seed)
    assert codes.dtype == np.int32
    assert codes.shape == (count, length)
    assert codes.min() >= 0
    assert codes.max() < shape.vocab_size
    assert len({tuple(code) for code in codes.tolist()}) == count
    for level in range(1, length + 1):
        _, sizes = np.unique(codes[:, :level], axis=0, return_counts=True)
        assert sizes.max() <= shape.vocab_size ** (length - level)
    check_codes(codes, shape)


@pytest.mark.parametrize("count", [1, 125])
def test_every_code_is_used_when_there_are_as_many_identities(count: int) -> None:
    shape = code_shape(count, TokenizationConfig(length=3))
    codes = codes_of(unit(count, 8), shape)
    assert len(np.unique(codes @ shape.vocab_size ** np.arange(3))) == count == shape.vocab_size**3


def test_identities_with_a_common_first_token_are_nearer_to_each_other() -> None:
    vectors = unit(6, 16)[np.random.default_rng(1).integers(6, size=300)] + 0.1 * unit(300, 16, 2)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    codes = codes_of(vectors, CodeShape(3, 7))
    cosine, same = vectors @ vectors.T, codes[:, :1] == codes[:, 0]
    assert cosine[same].mean() > cosine[~same].mean() + 0.3


THREADS = """
import hashlib, sys
import numpy as np
from gif_core.tokenization.prefix_sums import sum_by_prefix
from gif_core.tokenization.token_alignment import align_tokens
from gif_core.tokenization import code_shape, tokenize
from schemas.tokenization import TokenizationConfig
rows = np.random.default_rng(0).normal(size=(6000, 96))
vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
shape = code_shape(len(vectors), TokenizationConfig())
*_, last = tokenize(
    vectors, shape, iterations=8, seed=int(sys.argv[1]), points_per_centroid=200, workers=int(sys.argv[2])
)
*_, aligned = align_tokens(vectors, last.codes_NL, sum_by_prefix(vectors, last.codes_NL, shape), shape, seed=0)
print(hashlib.sha256(last.codes_NL.tobytes() + aligned.codes_NL.tobytes()).hexdigest())
"""


def test_same_seed_same_codes_on_one_and_on_two_threads() -> None:
    """Whole processes, so that every library below has the number of threads from its start."""

    def digest(seed: int, threads: int) -> str:
        variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        return subprocess.run(
            [sys.executable, "-c", THREADS, str(seed), str(threads)],
            env={**os.environ, **dict.fromkeys(variables, str(threads))},
            cwd=PROJECT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    assert digest(7, 1) == digest(7, 2) != digest(8, 2)


def test_progress_rises_to_all_tokens_and_only_the_last_step_has_codes() -> None:
    steps = list(tokenize(unit(500, 8), CodeShape(3, 8), iterations=3, seed=0))
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert done[0] == 0
    assert len(set(done)) > 5
    assert {step.total for step in steps} == {1500} == {done[-1]}
    assert [step.codes_NL is not None for step in steps] == [False] * (len(steps) - 1) + [True]


def test_rows_given_in_another_precision_get_the_same_codes() -> None:
    vectors = unit(200, 8)
    assert np.array_equal(codes_of(vectors, CodeShape(3, 6)), codes_of(vectors.astype(np.float64), CodeShape(3, 6)))


def test_too_many_or_no_or_not_finite_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="9 identities do not fit"):
        codes_of(unit(9, 4), CodeShape(3, 2))
    with pytest.raises(ValueError, match="0 identities do not fit"):
        codes_of(unit(0, 4), CodeShape(3, 2))
    with pytest.raises(ValueError, match="not finite"):
        codes_of(np.full((3, 2), np.nan, dtype=np.float32), CodeShape(2, 2))


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([[0, 0], [0, 2]], r"token 2 of identity 1 is 2, outside \[0, 1\]"),
        ([[0, 0], [-1, 0]], r"token 1 of identity 1 is -1"),
        ([[0, 1], [1, 0], [0, 1]], r"code \[0, 1\] is shared by 2 identities \(such as \[0, 2\]\)"),
        (
            [[0, 0], [0, 1], [0, 1]],
            r"prefix \[0\] is shared by 3 identities .* above its capacity 2",
        ),
        ([[0, 0, 0]], "integer codes of 2 tokens"),
        ([[0.0, 1.0]], "integer codes of 2 tokens"),
    ],
)
def test_check_names_the_first_violation(codes: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_codes(np.array(codes), CodeShape(2, 2))


@pytest.mark.parametrize("kind", ["equal", "pairs", "one far"])
@pytest.mark.parametrize("count", [1, 2, 26, 27, 63, 64])
def test_degenerate_vectors_get_valid_codes(kind: str, count: int) -> None:
    """Also when the tree is full (m = v^l) or one short of it."""
    vectors = np.repeat(unit(1, 6), count, axis=0)
    if kind == "pairs":
        vectors = np.repeat(unit(-(-count // 2), 6), 2, axis=0)[:count]
    elif kind == "one far":
        vectors[0] *= -1
    shape = code_shape(count, TokenizationConfig(length=3))
    check_codes(codes_of(vectors, shape), shape)


def test_the_vector_that_is_not_finite_is_named_also_where_nothing_is_clustered() -> None:
    vectors = unit(5, 4)
    vectors[3, 2] = np.inf
    with pytest.raises(ValueError, match="vectors of row 3 are not finite"):
        codes_of(vectors, CodeShape(1, 5))


def test_centroids_of_a_sample_serve_nearly_as_well_as_those_of_all() -> None:
    vectors = unit(40, 24)[np.random.default_rng(1).integers(40, size=4000)] + 0.5 * unit(4000, 24, 2)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    shape = CodeShape(2, 64)
    cosines = []
    for points in (10**6, 16):
        *_, last = tokenize(vectors, shape, iterations=10, seed=0, points_per_centroid=points)
        assert last.codes_NL is not None
        check_codes(last.codes_NL, shape)
        cosines.append(mean_cosines(sum_by_prefix(vectors, last.codes_NL, shape))[1])
    assert cosines[1] / cosines[0] > 0.97


def test_codes_of_mapped_vectors_are_those_of_vectors_in_memory(tmp_path: Path) -> None:
    vectors = unit(700, 12)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    assert np.array_equal(codes_of(mapped, CodeShape(3, 9)), codes_of(vectors, CodeShape(3, 9)))


def test_atomic_codes_are_valid_random_and_repeatable() -> None:
    shape = code_shape(900, TokenizationConfig(mode="atomic", length=3))
    codes = draw_codes(900, shape, seed=3)
    check_codes(codes, shape)
    assert codes.dtype == np.int32
    assert np.array_equal(codes, draw_codes(900, shape, seed=3))
    assert not np.array_equal(codes, draw_codes(900, shape, seed=4))
    counts = np.bincount(codes[:, 0], minlength=shape.vocab_size)
    assert counts.min() > 60


def test_scalar_codes_are_the_identities_themselves() -> None:
    shape = code_shape(900, TokenizationConfig(mode="scalar"))
    assert shape == CodeShape(1, 900)
    assert draw_codes(900, shape, seed=0)[:, 0].tolist() == list(range(900))
    with pytest.raises(ValidationError, match="one token"):
        TokenizationConfig(mode="scalar", length=3)


def test_more_identities_than_codes_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="9 identities do not fit"):
        draw_codes(9, CodeShape(3, 2), seed=0)
