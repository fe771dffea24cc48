import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import least_squares

from gif_core.images import align
from gif_core.images.alignment import TEMPLATE, estimate_similarity


def similarity(angle: float, scale: float, shift: tuple[float, float]) -> np.ndarray:
    """The 2×3 matrix of a known rotation, scale and shift."""
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    return np.array([[cos, -sin, shift[0]], [sin, cos, shift[1]]])


def move(points_52: np.ndarray, transform_23: np.ndarray) -> np.ndarray:
    return points_52 @ transform_23[:, :2].T + transform_23[:, 2]


def misfit(points_52: np.ndarray, transform_23: np.ndarray) -> float:
    return float(((move(points_52, transform_23) - TEMPLATE) ** 2).sum())


def noisy_points(seed: int, noise: float = 6.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    points = move(TEMPLATE, similarity(rng.uniform(-1, 1), rng.uniform(0.3, 4), (200.0, 150.0)))
    return points + rng.normal(scale=noise, size=points.shape)


@given(
    angle=st.floats(-np.pi, np.pi),
    scale=st.floats(0.05, 40),
    shift=st.tuples(st.floats(-2000, 2000), st.floats(-2000, 2000)),
)
def test_a_known_similarity_is_recovered_exactly(angle: float, scale: float, shift: tuple[float, float]) -> None:
    forth = similarity(angle, scale, shift)
    back = estimate_similarity(move(TEMPLATE, forth))
    np.testing.assert_allclose(move(move(TEMPLATE, forth), back), TEMPLATE, atol=1e-8)
    np.testing.assert_allclose(back[:, :2] @ forth[:, :2], np.eye(2), atol=1e-9)


def test_the_template_maps_to_itself() -> None:
    np.testing.assert_allclose(estimate_similarity(TEMPLATE), [[1, 0, 0], [0, 1, 0]], atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_noisy_landmarks_get_the_least_squares_optimum(seed: int) -> None:
    points = noisy_points(seed)

    def residuals(parameters: np.ndarray) -> np.ndarray:
        angle, scale, x, y = parameters
        return (move(points, similarity(angle, scale, (x, y))) - TEMPLATE).ravel()

    reference = least_squares(residuals, [0.0, 1.0, 0.0, 0.0], x_scale=[0.1, 0.1, 10, 10], ftol=1e-15, xtol=1e-15)
    assert misfit(points, estimate_similarity(points)) <= 2 * reference.cost * (1 + 1e-9)


@given(seed=st.integers(0, 10_000), change=st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_no_other_similarity_fits_better(seed: int, change: list[float]) -> None:
    points = noisy_points(seed)
    best = estimate_similarity(points)
    a, b, x, y = change
    other = best + np.array([[a, -b, x], [b, a, y]])
    assert misfit(points, best) <= misfit(points, other) * (1 + 1e-9)


def test_landmarks_in_a_mirror_are_not_answered_with_a_reflection() -> None:
    mirrored = TEMPLATE * [-1, 1]
    transform = estimate_similarity(mirrored)
    assert np.linalg.det(transform[:, :2]) > 0
    angles = [similarity(angle, scale, (0, 0)) for angle in np.linspace(-3, 3, 61) for scale in (0.1, 0.5, 1.0)]
    centred = mirrored - mirrored.mean(axis=0)
    others = [misfit(centred, np.column_stack([each[:, :2], TEMPLATE.mean(axis=0)])) for each in angles]
    assert misfit(mirrored, transform) <= min(others)


def test_markers_land_on_the_template() -> None:
    image = np.zeros((400, 500, 3), np.uint8)
    points = move(TEMPLATE, similarity(0.4, 2.0, (180.0, 60.0)))
    for number, point in enumerate(np.round(points).astype(int)):
        cv2.circle(image, tuple(map(int, point)), 5, (40 + 50 * number, 0, 0), -1)
    aligned = align(image, np.round(points))
    assert (aligned.shape, aligned.dtype) == ((112, 112, 3), np.uint8)
    for number, place in enumerate(TEMPLATE):
        ys, xs = np.nonzero(np.abs(aligned[:, :, 0].astype(int) - 40 - 50 * number) < 8)
        near = np.hypot(xs - place[0], ys - place[1]) < 4
        assert near.sum() >= 5
        np.testing.assert_allclose([xs[near].mean(), ys[near].mean()], place, atol=0.6)


def test_an_aligned_image_stays_as_it_is() -> None:
    image = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    assert np.array_equal(align(image, TEMPLATE), image)


def test_pixels_between_pixels_are_their_bilinear_mean() -> None:
    image = np.zeros((112, 112, 1), np.uint8)
    image[:, 50], image[:, 51] = 100, 200
    shifted = align(image, move(TEMPLATE, similarity(0, 1, (0.5, 0))))
    assert shifted[:, 49:52, 0].max(axis=0).tolist() == [50, 150, 100]


def test_what_lies_outside_of_the_image_is_black() -> None:
    white = np.full((112, 112, 3), 255, np.uint8)
    aligned = align(white, move(TEMPLATE, similarity(0, 1, (-40, 0))))
    assert (aligned[:, :39] == 0).all()
    assert (aligned[:, 41:] == 255).all()


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (np.full((5, 2), 33.3), r"are all at \[33\.3, 33\.3\]"),
        (np.full((5, 2), 1e5) + 1e-9 * TEMPLATE, "are all at"),
        (np.where(TEMPLATE > 92.3, np.nan, TEMPLATE), "finite"),
        (np.where(TEMPLATE > 92.3, np.inf, TEMPLATE), "finite"),
        (TEMPLATE[:4], r"not the shape \(4, 2\)"),
        (TEMPLATE.ravel(), r"not the shape \(10,\)"),
        (TEMPLATE.T, r"not the shape \(2, 5\)"),
    ],
)
def test_landmarks_that_are_no_face_are_refused(points: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        align(np.zeros((112, 112, 3), np.uint8), points)


@pytest.mark.parametrize("shape", [(112, 112), (0, 10, 3), (10, 0, 3)])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="height, width and channels"):
        align(np.zeros(shape, np.uint8), TEMPLATE)
