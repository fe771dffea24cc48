"""Identity vectors in fewer dimensions."""

import numpy as np
import pytest
from numpy.typing import NDArray

from gif_core.separation import leading_directions, project
from schemas.errors import GifError


def unit(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_vectors_of_a_subspace_keep_all_their_cosines_in_its_dimensions() -> None:
    rng = np.random.default_rng(0)
    vectors = unit(rng.standard_normal((500, 6)) @ rng.standard_normal((6, 40)))
    found = project(vectors, leading_directions([vectors[:200], vectors[200:]], 6))
    assert found.shape == (500, 6)
    np.testing.assert_allclose(found @ found.T, vectors @ vectors.T, atol=1e-5)


def test_no_other_subspace_of_that_many_dimensions_keeps_more_of_the_vectors() -> None:
    rng = np.random.default_rng(1)
    vectors = unit(rng.standard_normal((800, 12)) * np.linspace(3, 1, 12) + 1)
    basis = leading_directions([vectors], 4)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-9)
    kept = np.square(vectors @ basis).sum()
    singular = np.linalg.svd(vectors, compute_uv=False)
    assert kept == pytest.approx(np.square(singular[:4]).sum(), rel=1e-5)
    others = [np.linalg.qr(rng.standard_normal((12, 4)))[0] for _ in range(50)]
    assert all(np.square(vectors @ other).sum() < kept for other in others)


def test_a_vector_without_component_in_the_subspace_is_refused() -> None:
    vectors = np.eye(3, dtype=np.float32)[[0, 0, 0, 1, 1, 2]]
    with pytest.raises(GifError, match=r"1 identity vectors have no component in the 2 leading dimensions: raise"):
        project(vectors, leading_directions([vectors], 2))
