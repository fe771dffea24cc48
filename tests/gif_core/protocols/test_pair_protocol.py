from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import roc_curve
from sklearn.model_selection import KFold
from sklearn.preprocessing import normalize

from gif_core.protocols import UndefinedMetricsError, Verification, pair_distances, verify_distances, worst_errors


def make_pairs(pairs: int = 237, dim: int = 6, noise: float = 0.9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    left = rng.normal(size=(pairs, dim)) * 3
    same = rng.random(pairs) < 0.5
    right = np.where(same[:, None], left + noise * rng.normal(size=(pairs, dim)) * 3, rng.normal(size=(pairs, dim)))
    return left, right, same


def verify_pairs(left: np.ndarray, right: np.ndarray, same: np.ndarray, folds: int = 10) -> Verification:
    rows = np.arange(len(same))
    return verify_distances(pair_distances(np.concatenate([left, right]), rows, rows + len(same)), same, folds)


def plain_accuracy(left: np.ndarray, right: np.ndarray, same: np.ndarray, folds: int) -> tuple[float, float]:
    """The protocol pair by pair, threshold by threshold, fold by fold."""
    distances = []
    for a, b in zip(left, right, strict=True):
        a, b = a / np.sqrt((a * a).sum()), b / np.sqrt((b * b).sum())
        distances.append(((a - b) ** 2).sum())

    def accuracy(pairs: list[int], threshold: float) -> float:
        return sum((distances[p] < threshold) == same[p] for p in pairs) / len(pairs)

    bounds = [0]
    for fold in range(folds):
        bounds.append(bounds[-1] + len(same) // folds + (fold < len(same) % folds))
    results = []
    for start, end in pairwise(bounds):
        inside = list(range(start, end))
        outside = [p for p in range(len(same)) if not start <= p < end]
        best, best_accuracy = 0.0, -1.0
        for threshold in np.arange(0, 4, 0.01):
            if accuracy(outside, threshold) > best_accuracy:
                best, best_accuracy = threshold, accuracy(outside, threshold)
        results.append(accuracy(inside, best))
    mean = sum(results) / folds
    return mean, (sum((r - mean) ** 2 for r in results) / folds) ** 0.5


@pytest.mark.parametrize("folds", [2, 5])
def test_accuracy_equals_a_plain_loop(folds: int) -> None:
    left, right, same = make_pairs()
    result = verify_pairs(left, right, same, folds=folds)
    assert (result.accuracy, result.accuracy_std) == pytest.approx(plain_accuracy(left, right, same, folds))
    assert 0.6 < result.accuracy < 0.99


def test_accuracy_equals_scikit_learns_folds() -> None:
    """insightface splits with an unshuffled KFold; ours must cut at the same places."""
    left, right, same = make_pairs(pairs=103)
    expected = []
    for outside, inside in KFold(10).split(same):
        distances = verify_like_insightface(left, right)
        accuracies = [((distances[outside] < t) == same[outside]).mean() for t in np.arange(0, 4, 0.01)]
        best = np.arange(0, 4, 0.01)[np.argmax(accuracies)]
        expected.append(((distances[inside] < best) == same[inside]).mean())
    result = verify_pairs(left, right, same)
    assert result.accuracy == pytest.approx(np.mean(expected))
    assert result.accuracy_std == pytest.approx(np.std(expected))


def verify_like_insightface(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.sum(np.square(normalize(left) - normalize(right)), axis=1)


def test_a_distance_equal_to_the_threshold_is_no_match() -> None:
    """With every distance on a threshold, the first best threshold is one step above the same pairs."""
    thresholds = np.arange(0, 4, 0.01)
    same = np.tile([True, False], 10)
    result = verify_distances(np.where(same, thresholds[50], thresholds[120]), same)
    assert result.accuracy == 1.0
    assert result.threshold == thresholds[51]


def test_of_equally_good_thresholds_the_first_is_taken() -> None:
    """Nine folds leave 0.51 … 1.20 equally good; a same pair at 0.60 in the tenth shows which was taken."""
    same = np.tile([True, False], 10)
    distance = np.where(same, 0.505, 1.205)
    distance[0] = 0.605
    result = verify_distances(distance, same)
    assert result.accuracy == pytest.approx(1 - 0.5 / 10)


def test_tar_at_far_is_the_rule_of_ijb() -> None:
    left, right, same = make_pairs(pairs=3001, noise=1.5)
    result = verify_pairs(left, right, same)
    scores = -verify_like_insightface(left, right)
    fpr, tpr, _ = roc_curve(same, scores)
    fpr, tpr = np.flipud(fpr), np.flipud(tpr)
    for far in (1e-1, 1e-2, 1e-3):
        _, index = min(zip(abs(fpr - far), range(len(fpr)), strict=True))
        assert result.tar_at_far[far] == tpr[index]
    assert 0 < result.tar_at_far[1e-3] < result.tar_at_far[1e-1] < 1


def test_curve_gives_the_rates_at_each_distance() -> None:
    left, right, same = make_pairs()
    result = verify_pairs(left, right, same)
    distance = verify_like_insightface(left, right)
    middle = len(result.roc.far) // 2
    accepted = distance <= result.roc.distance[middle] + 1e-12
    assert result.roc.far[middle] == pytest.approx(accepted[~same].mean())
    assert result.roc.tar[middle] == pytest.approx(accepted[same].mean())


def test_perfect_features_have_perfect_metrics() -> None:
    left = np.eye(40)
    right = np.where(np.arange(40)[:, None] % 2 == 0, left, np.roll(left, 1, axis=0))
    result = verify_pairs(left, right, np.arange(40) % 2 == 0)
    assert (result.accuracy, result.accuracy_std) == (1.0, 0.0)
    assert set(result.tar_at_far.values()) == {1.0}


def test_distances_in_chunks_equal_distances_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gif_core.protocols.pair_protocol._CHUNK_NUMBERS", 100)
    features, _, _ = make_pairs(pairs=50)
    rng = np.random.default_rng(1)
    left, right = rng.integers(0, 50, size=(2, 333))
    expected = verify_like_insightface(features[left], features[right])
    np.testing.assert_allclose(pair_distances(features, left, right), expected, atol=1e-12)


@pytest.mark.parametrize(("same", "undefined"), [(True, "FAR"), (False, "TAR")])
def test_pairs_of_one_kind_alone_have_no_metric(same: bool, undefined: str) -> None:
    with pytest.raises(UndefinedMetricsError, match=f"all 20 pairs are .*: {undefined} is undefined"):
        verify_distances(np.ones(20), np.full(20, same))


def test_the_worst_errors_are_the_closest_different_and_the_furthest_same_pairs() -> None:
    distance = np.array([0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 0.3])
    same = np.array([True, False, False, True, True, False, False])
    assert worst_errors(distance, same, 1.0, most=2).tolist() == [6, 1, 4, 3]
    assert worst_errors(distance, same, 1.0, most=9).tolist() == [6, 1, 2, 4, 3]
    assert worst_errors(distance, same, 0.0, most=9).tolist() == [4, 3, 0]


ADVERSARIAL = {
    "random": lambda rng: rng.random(400) * 4,
    "ties": lambda rng: rng.integers(0, 12, 400) / 3,
    "on the thresholds": lambda rng: np.arange(0, 4, 0.01)[rng.integers(0, 400, 400)],
    "all equal": lambda rng: np.full(400, 1.5),
    "two values": lambda rng: np.where(rng.random(400) < 0.5, 0.5, 3.0),
    "beyond the thresholds": lambda rng: 3.98 + rng.integers(0, 4, 400) / 100,
    "one ulp apart": lambda rng: np.nextafter(1.0, np.where(rng.random(400) < 0.5, 0, 2)),
    "zero": lambda rng: np.zeros(400),
}


@pytest.mark.parametrize("share", [0.5, 0.02, 0.98])
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_metrics_of_adversarial_distances_equal_a_plain_loop_to_the_last_digit(name: str, share: float) -> None:
    rng = np.random.default_rng([11, *name.encode()])
    distance, same = ADVERSARIAL[name](rng), rng.random(400) < share
    same[:2] = True, False
    result, thresholds = verify_distances(distance, same), np.arange(0, 4, 0.01)
    accuracies = []
    for fold in range(10):
        inside = np.arange(400) // 40 == fold
        right = [int(np.sum((distance[~inside] < t) == same[~inside])) for t in thresholds]
        best = thresholds[right.index(max(right))]
        accuracies.append(np.mean((distance[inside] < best) == same[inside]))
    overall = [int(np.sum((distance < t) == same)) for t in thresholds]
    assert (result.accuracy, result.accuracy_std) == (np.mean(accuracies), np.std(accuracies))
    assert result.threshold == thresholds[overall.index(max(overall))]
    fpr, tpr, _ = roc_curve(same, -distance)
    for far, tar in result.tar_at_far.items():
        assert tar == tpr[::-1][np.argmin(np.abs(fpr[::-1] - far))]


def test_fewer_pairs_than_folds_have_no_metric() -> None:
    with pytest.raises(ValueError, match="9 pairs cannot be split into 10 folds"):
        verify_distances(np.ones(9), np.arange(9) % 2 == 0)


def test_features_that_are_not_numbers_have_no_metric() -> None:
    left, right, same = make_pairs()
    left[3, 0] = np.nan
    with pytest.raises(ValueError, match="1 pairs have features that are not finite"):
        verify_pairs(left, right, same)
