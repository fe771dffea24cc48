"""The ROC curve: the points of scikit-learn's `roc_curve`, computed with a plain sort of the scores."""

# Shapes: P pairs, V distinct scores.

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.errors import GifError


class UndefinedMetricsError(GifError, ValueError):
    """Pairs or probes for which a metric is undefined, such as pairs that are all of one kind."""


@dataclass(frozen=True, slots=True)
class Roc:
    """Accept rates of different (`far`) and of same (`tar`) pairs at or above each score."""

    far: NDArray[np.float64]
    tar: NDArray[np.float64]
    score: NDArray[np.float64]

    @property
    def distance(self) -> NDArray[np.float64]:
        """The thresholds as distances, where scores are negative distances."""
        return -self.score


def measure_roc(score_P: NDArray[np.float64], same_P: NDArray[np.bool_]) -> Roc:
    """Return all corners of the curve from (0, 0) on, as `sklearn.metrics.roc_curve` does by default.

    Every distinct score is a point. Collinear points are dropped, which changes the achievable FAR closest to a rate,
    so metrics are only comparable if the same points are dropped.
    """
    check_scores(score_P, same_P)
    value_V, different_V, same_V = _count_by_value(np.sort(score_P[~same_P]), np.sort(score_P[same_P]))
    corner_V = np.ones(len(value_V), np.bool_)
    corner_V[1:-1] = (different_V[1:-1] != different_V[:-2]) | (same_V[1:-1] != same_V[:-2])
    far, tar = (_accumulate(counts_V, corner_V) for counts_V in (different_V, same_V))
    return Roc(far, tar, np.append(np.inf, value_V[corner_V][::-1]))


def tar_at_far(roc: Roc, far: float) -> float:
    """Return TAR at the achievable FAR closest to `far`; of equally close points, at the largest FAR, then TAR."""
    return float(roc.tar[::-1][np.abs(roc.far[::-1] - far).argmin()])


def check_scores(score_P: NDArray[np.float64], same_P: NDArray[np.bool_]) -> None:
    """Raise if these pairs have no ROC curve."""
    if len(score_P) != len(same_P):
        raise ValueError(f"{len(score_P)} scores for {len(same_P)} pairs")
    check_kinds(same_P)
    if not np.isfinite(score_P).all():
        raise ValueError(f"{(~np.isfinite(score_P)).sum()} pairs have features that are not finite numbers")


def check_kinds(same_P: NDArray[np.bool_]) -> None:
    """Raise `UndefinedMetricsError` if there are no pairs or all are of one kind."""
    if not len(same_P):
        raise UndefinedMetricsError("there are no pairs: nothing can be measured")
    if same_P.all():
        raise UndefinedMetricsError(
            f"all {len(same_P):,} pairs are same pairs: FAR is undefined without different pairs, and so are accuracy "
            "and TAR at FAR"
        )
    if not same_P.any():
        raise UndefinedMetricsError(
            f"all {len(same_P):,} pairs are different pairs: TAR is undefined without same pairs, and so is accuracy"
        )


def _count_by_value(
    different: NDArray[np.float64], same: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
    """Return distinct scores, ascending, and the number of pairs of each kind with them; inputs are sorted."""
    value_V, different_V = _distinct(different)
    same_value, same_count = _distinct(same)
    place = np.searchsorted(value_V, same_value)
    new = value_V[np.minimum(place, len(value_V) - 1)] != same_value
    value_V = np.insert(value_V, place[new], same_value[new])
    different_V = np.insert(different_V, place[new], 0)
    same_V = np.zeros(len(value_V), np.int32)
    same_V[np.searchsorted(value_V, same_value)] = same_count
    return value_V, different_V, same_V


def _distinct(ascending: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the distinct values and their counts."""
    last = np.flatnonzero(np.append(ascending[1:] != ascending[:-1], True))
    return ascending[last], np.diff(last, prepend=-1).astype(np.int32)


def _accumulate(counts_V: NDArray[np.int32], corner_V: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the share of pairs at or above each corner, from the highest score down, starting with 0."""
    above_V = np.cumsum(counts_V[::-1], dtype=np.int64)
    share: NDArray[np.float64] = np.append(0, above_V[corner_V[::-1]]) / above_V[-1]
    return share
