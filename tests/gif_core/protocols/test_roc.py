import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_curve

from gif_core.protocols import UndefinedMetricsError
from gif_core.protocols.roc import measure_roc, tar_at_far

RATES = [10.0**-power for power in range(6, 0, -1)]


def nearest_in_reverse(same: np.ndarray, scores: np.ndarray, far: float) -> float:
    """How the field reads a rate off scikit-learn's curve."""
    fpr, tpr, _ = roc_curve(same, scores)
    fpr, tpr = np.flipud(fpr), np.flipud(tpr)
    _, index = min(zip(abs(fpr - far), range(len(fpr)), strict=True))
    return float(tpr[index])


def assert_same_curve(scores: np.ndarray, same: np.ndarray) -> None:
    roc = measure_roc(scores, same)
    for ours, theirs in zip((roc.far, roc.tar, roc.score), roc_curve(same, scores), strict=True):
        assert np.array_equal(ours, theirs)
    assert [tar_at_far(roc, far) for far in RATES] == [nearest_in_reverse(same, scores, far) for far in RATES]


@given(st.lists(st.tuples(st.integers(-3, 12), st.booleans()), min_size=2, max_size=60))
def test_any_scores_with_ties_give_scikit_learns_curve_to_the_last_digit(pairs: list[tuple[int, bool]]) -> None:
    scores, same = np.array([score / 7 for score, _ in pairs]), np.array([truth for _, truth in pairs])
    if same.all() or not same.any():
        with pytest.raises(UndefinedMetricsError):
            measure_roc(scores, same)
    else:
        assert_same_curve(scores, same)


@pytest.mark.parametrize("genuine", [1, 40, 5000, 9999])
def test_distinct_scores_give_scikit_learns_curve(genuine: int) -> None:
    rng = np.random.default_rng(genuine)
    same = rng.permutation(10_000) < genuine
    assert_same_curve(rng.normal(size=10_000) + 2 * same, same)


@pytest.mark.parametrize("scores", [np.zeros(9), np.repeat([1.0, 1.0 + 2**-52, 1.0 - 2**-53], 3), np.full(9, -0.0)])
def test_equal_and_nearly_equal_scores_give_scikit_learns_curve(scores: np.ndarray) -> None:
    assert_same_curve(scores, np.arange(9) % 2 == 0)


def test_separated_scores_give_scikit_learns_curve() -> None:
    same = np.arange(500) < 40
    for scores in (np.linspace(1, 0, 500), np.linspace(0, 1, 500)):
        assert_same_curve(scores, same)


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="2 pairs have features that are not finite"):
        measure_roc(np.array([0.5, np.nan, np.inf]), np.array([True, False, True]))
    with pytest.raises(UndefinedMetricsError, match="no pairs"):
        measure_roc(np.empty(0), np.empty(0, np.bool_))
