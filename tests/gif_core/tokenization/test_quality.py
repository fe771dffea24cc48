import numpy as np
import pytest
from numpy.typing import NDArray

from gif_core.tokenization import Codes, CodeShape, code_quality, tokenize, unpack_codes
from gif_core.tokenization.prefix_sums import sum_rows
from gif_core.tokenization.quality import SCHEMA, nearest_neighbours, random_together

Vectors = NDArray[np.float32]
SHAPE = CodeShape(3, 6)


def unit(vectors: NDArray[np.floating]) -> Vectors:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    rng = np.random.default_rng(0)
    return unit(rng.normal(size=(6, 16))[rng.integers(0, 6, 180)] + 0.6 * rng.normal(size=(180, 16)))


@pytest.fixture(scope="module")
def codes(vectors: Vectors) -> Codes:
    *_, last = tokenize(vectors, SHAPE, iterations=20, seed=0)
    assert last.codes_NL is not None
    return last.codes_NL


def test_the_metrics_of_a_level_are_what_a_plain_count_gives(codes: Codes, vectors: Vectors) -> None:
    rows = code_quality(codes, SHAPE, vectors).to_pylist()
    assert [row["level"] for row in rows] == [1, 2]
    for row in rows:
        _, node, size = np.unique(codes[:, : row["level"]], axis=0, return_inverse=True, return_counts=True)
        assert (row["nodes"], row["largest"], row["capacity"]) == (len(size), size.max(), 6 ** (3 - row["level"]))
        assert row["occupancy"] == pytest.approx(size.mean() / row["capacity"])
        means = unit(np.stack([vectors[node == number].sum(axis=0) for number in range(len(size))]))
        assert row["objective"] == pytest.approx((vectors * means[node]).sum(axis=1).mean(), abs=1e-5)
        cosine = vectors @ vectors.T - 2 * np.eye(180)
        nearest = np.argsort(-cosine, axis=1)[:, :10]
        assert row["neighbours_together"] == pytest.approx((node[nearest] == node[:, None]).mean())
        same = node[:, None] == node
        assert row["random_together"] == pytest.approx((same.sum() - 180) / (180 * 179))


def test_the_root_is_compared_with_k_means_without_the_bound(codes: Codes, vectors: Vectors) -> None:
    first, second = code_quality(codes, SHAPE, vectors).to_pylist()
    assert first["bounded"] == pytest.approx(first["objective"])
    for row in (first, second):
        assert 0.9 < row["bounded"] / row["unbounded"] <= 1


def test_random_codes_keep_no_neighbours_together_and_cost_much(vectors: Vectors) -> None:
    atomic = unpack_codes(np.random.default_rng(0).permutation(6**3)[:180], SHAPE)
    first, _ = code_quality(atomic, SHAPE, vectors).to_pylist()
    assert first["neighbours_together"] == pytest.approx(first["random_together"], abs=0.03)
    assert first["bounded"] / first["unbounded"] < 0.8


def test_random_together_is_exact() -> None:
    assert random_together(np.array([2, 1, 1])) == pytest.approx(1 / 6)
    assert random_together(np.array([4])) == 1
    assert random_together(np.array([1])) is None


def test_codes_of_one_token_have_no_levels_and_one_identity_no_neighbours() -> None:
    one = code_quality(np.zeros((1, 1), np.int32), CodeShape(1, 1), np.ones((1, 4), np.float32))
    assert (one.num_rows, one.schema) == (0, SCHEMA)
    alone = code_quality(np.zeros((1, 2), np.int32), CodeShape(2, 1), np.ones((1, 4), np.float32)).to_pylist()
    assert [(row["neighbours_together"], row["random_together"], row["unbounded"]) for row in alone] == [
        (None, None, None)
    ]


def test_an_identity_is_never_its_own_neighbour_even_among_duplicates(vectors: Vectors) -> None:
    rows = np.arange(0, 180, 7)
    doubles = np.repeat(vectors[:1], 180, axis=0)
    for some in (vectors, doubles):
        nearest = nearest_neighbours(some, rows)
        assert nearest.shape == (len(rows), 10)
        assert not (nearest == rows[:, None]).any()
        assert all(len(set(row)) == 10 for row in nearest.tolist())


def test_sums_are_those_of_the_rows_with_each_key(vectors: Vectors) -> None:
    keys = np.arange(180) % 5
    expected = np.stack([vectors[keys == key].sum(axis=0) for key in range(5)])
    sums = sum_rows(vectors, keys, 6)
    assert sums[:5] == pytest.approx(expected, abs=1e-5)
    assert not sums[5].any()


def test_the_same_input_gives_the_same_metrics(codes: Codes, vectors: Vectors) -> None:
    assert code_quality(codes, SHAPE, vectors).equals(code_quality(codes, SHAPE, vectors))
