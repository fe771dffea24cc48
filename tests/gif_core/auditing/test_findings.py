"""Wrong labels are found from vectors that are drawn here, whose persons are known."""

# Shapes: N images, P persons, D dimensions.

import numpy as np
import pytest
from numpy.typing import NDArray

from gif_core.auditing import find_noise
from gif_core.auditing.calibration import accept, best_threshold
from gif_core.auditing.findings import NEW, NOWHERE
from gif_core.auditing.groups import group_images
from gif_core.auditing.neighbours import find_neighbours

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
DIM = 48


def draw(persons: int, images: int, noise: float = 0.8, seed: int = 0) -> tuple[Floats, Ints]:
    """Unit features of persons with so many images each, and the persons."""
    rng = np.random.default_rng(seed)
    person_N = np.repeat(np.arange(persons), images)
    features_ND = rng.standard_normal((persons, DIM))[person_N] + noise * rng.standard_normal((len(person_N), DIM))
    return (features_ND / np.linalg.norm(features_ND, axis=1, keepdims=True)).astype(np.float32), person_N


@pytest.mark.parametrize("offset", [0.0, 3.0], ids=["all directions", "a narrow cone"])
def test_right_labels_are_left_alone(offset: float) -> None:
    features_ND, person_N = draw(60, 12)
    found = find_noise(features_ND + np.float32(offset), person_N)
    wrong = sum(len(finding.rows) for finding in found.findings)
    assert wrong < 0.01 * len(person_N)


def test_a_person_under_two_labels_is_a_duplicate_and_gets_one_label() -> None:
    features_ND, person_N = draw(60, 12)
    label_N = person_N.copy()
    label_N[np.flatnonzero(person_N == 7)[:5]] = 60
    (found,) = find_noise(features_ND, label_N).of("duplicate")
    assert (found.person, found.to) == (60, 7)
    assert label_N[found.rows].tolist() == [60] * 5


def test_three_labels_of_one_person_become_one() -> None:
    features_ND, person_N = draw(100, 24)
    label_N = person_N.copy()
    for place, person in enumerate([7, *range(20, 40)]):
        label_N[np.flatnonzero(person_N == person)[:7]] = 100 + place
    label_N[np.flatnonzero(person_N == 7)[7:15]] = 121
    found = find_noise(features_ND, label_N).of("duplicate")
    assert {(100, 7), (121, 7)} < {(finding.person, finding.to) for finding in found}


def test_an_identity_of_two_persons_is_mixed_and_the_smaller_part_gets_a_label_of_its_own() -> None:
    features_ND, person_N = draw(60, 12)
    _, label_N = np.unique(np.where(person_N == 9, 8, person_N), return_inverse=True)
    label_N = np.delete(label_N, np.flatnonzero(person_N == 9)[:3])
    kept = np.delete(np.arange(len(person_N)), np.flatnonzero(person_N == 9)[:3])
    (found,) = find_noise(features_ND[kept], label_N).of("mixed")
    assert (found.person, found.to) == (8, NEW)
    assert set(person_N[kept][found.rows].tolist()) == {9}
    assert len(found.rows) == 9


def test_flipped_images_are_moved_to_the_identity_they_show() -> None:
    features_ND, person_N = draw(80, 15)
    rng = np.random.default_rng(1)
    flipped = rng.choice(len(person_N), 100, replace=False)
    label_N = person_N.copy()
    label_N[flipped] = (person_N[flipped] + rng.integers(1, 80, 100)) % 80
    found = find_noise(features_ND, label_N).of("flipped")
    rows = np.concatenate([finding.rows for finding in found])
    to = np.concatenate([[finding.to] * len(finding.rows) for finding in found])
    assert len(set(rows.tolist()) & set(flipped.tolist())) >= 0.9 * len(flipped)
    assert (person_N[rows] == to).mean() > 0.95


def test_images_of_strangers_are_left_out() -> None:
    features_ND, person_N = draw(100, 12)
    label_N = person_N.copy()
    strangers = np.flatnonzero(person_N >= 90)[::12]  # one image of each of ten persons who have no label
    label_N[strangers] = np.arange(10)
    kept = np.flatnonzero(label_N < 90)
    found = find_noise(features_ND[kept], label_N[kept]).of("stray")
    rows = np.concatenate([finding.rows for finding in found])
    assert all(finding.to == NOWHERE for finding in found)
    assert (person_N[kept][rows] >= 90).sum() >= 9


def test_images_that_were_not_compared_join_the_group_they_are_like(monkeypatch: pytest.MonkeyPatch) -> None:
    features_ND, person_N = draw(2, 40, noise=0.3)
    whole = group_images(features_ND, 0.5)
    monkeypatch.setattr("gif_core.auditing.groups.MOST", 20)
    assert group_images(features_ND, 0.5).tolist() == whole.tolist() == person_N.tolist()


def test_groups_are_numbered_by_size() -> None:
    features_ND, _ = draw(3, 6, noise=0.2)
    kept = np.delete(np.arange(18), [0, 1, 2, 6])  # three, five and six images
    assert group_images(features_ND[kept], 0.5).tolist() == [2] * 3 + [1] * 5 + [0] * 6


def test_wrong_labels_do_not_move_the_threshold_between_one_person_and_two() -> None:
    rng = np.random.default_rng(0)
    same, different = rng.normal(0.7, 0.1, 20_000), rng.normal(0.1, 0.1, 20_000)
    noisy = np.concatenate([same, rng.normal(0.1, 0.1, 5_000)])
    floats = [each.astype(np.float32) for each in (same, noisy, different)]
    assert best_threshold(floats[1], floats[2]) == pytest.approx(best_threshold(floats[0], floats[2]), abs=0.03)


def test_the_estimated_precision_is_close_to_the_true_one() -> None:
    rng = np.random.default_rng(0)
    strangers = rng.normal(5, 1, (3, 20_000)).astype(np.float32)
    is_same = rng.random(20_000) < 0.4
    nearest = np.where(is_same, rng.normal(2, 0.8, 20_000), strangers[0]).astype(np.float32)
    found = accept(nearest, strangers[1], precision=0.9, ordinary=4.5)
    true = is_same[nearest <= found.threshold].mean()
    assert found.precision >= 0.9
    assert abs(true - found.precision) < 0.02
    assert found.found > 0.9 * is_same.sum()


def test_nothing_is_accepted_where_the_nearest_is_no_nearer_than_the_second() -> None:
    rng = np.random.default_rng(0)
    nearest, second = rng.normal(5, 1, (2, 1000)).astype(np.float32)
    assert accept(nearest, second, precision=0.9, ordinary=4.5).found < 10


def test_the_nearest_identity_of_large_groups_is_found_among_many() -> None:
    rng = np.random.default_rng(0)
    means_PD, sizes_P = rng.standard_normal((500, DIM)).astype(np.float32), rng.integers(1, 9, 500)
    numbers = np.arange(500)
    found = find_neighbours(means_PD, sizes_P, numbers, means_PD, sizes_P, numbers)
    apart_PP = np.square(means_PD[:, None] - means_PD[None]).sum(axis=2)
    apart_PP *= sizes_P[:, None] * sizes_P / (sizes_P[:, None] + sizes_P)
    np.fill_diagonal(apart_PP, np.inf)
    same = found.nearest_Q <= apart_PP.min(axis=1) * 1.001
    assert np.isfinite(found.nearest_Q).all()
    assert (np.argmin(apart_PP, axis=1) != numbers).all()
    assert same.mean() > 0.3  # candidates are chosen by direction; sizes then decide among them
