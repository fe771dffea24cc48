"""Accept rates over all thresholds: the points of scikit-learn's `roc_curve`, found with one sort of bare numbers."""

# Shapes: P pairs, V distinct scores.

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.errors import GifError


class UndefinedMetricsError(GifError, ValueError):
    """A set of pairs that cannot answer the question, such as one whose pairs are all of one person."""


@dataclass(frozen=True, slots=True)
class Roc:
    """Accept rates of different (`far`) and of same (`tar`) pairs at or above each score."""

    far: NDArray[np.float64]
    tar: NDArray[np.float64]
    score: NDArray[np.float64]

    @property
    def distance(self) -> NDArray[np.float64]:
        """The same when scores are negative distances."""
        return -self.score


def measure_roc(score_P: NDArray[np.float64], same_P: NDArray[np.bool_]) -> Roc:
    """All corners of the curve from (0, 0) on, as `sklearn.metrics.roc_curve` gives them by default.

    Every distinct score is a point. One where the curve goes straight on is left out, which shifts what is nearest
    to a rate; so whoever compares metrics must leave out the same ones.
    """
    check_scores(score_P, same_P)
    value_V, different_V, same_V = _count_by_value(np.sort(score_P[~same_P]), np.sort(score_P[same_P]))
    corner_V = np.ones(len(value_V), np.bool_)
    corner_V[1:-1] = (different_V[1:-1] != different_V[:-2]) | (same_V[1:-1] != same_V[:-2])
    far, tar = (_accumulate(counts_V, corner_V) for counts_V in (different_V, same_V))
    return Roc(far, tar, np.append(np.inf, value_V[corner_V][::-1]))


def tar_at_far(roc: Roc, far: float) -> float:
    """TAR where FAR is nearest to `far`; of equally near points the one with the largest FAR, then TAR."""
    return float(roc.tar[::-1][np.abs(roc.far[::-1] - far).argmin()])


def check_scores(score_P: NDArray[np.float64], same_P: NDArray[np.bool_]) -> None:
    """Refuse pairs that have no ROC, with the reason."""
    if len(score_P) != len(same_P):
        raise ValueError(f"{len(score_P)} scores for {len(same_P)} pairs")
    check_kinds(same_P)
    if not np.isfinite(score_P).all():
        raise ValueError(f"{(~np.isfinite(score_P)).sum()} pairs have features that are not finite numbers")


def check_kinds(same_P: NDArray[np.bool_]) -> None:
    """Refuse pairs that are all of one kind."""
    if not len(same_P):
        raise UndefinedMetricsError("there are no pairs: nothing can be measured")
    if same_P.all():
        raise UndefinedMetricsError(
            f"all {len(same_P):,} pairs are of one person: FAR is undefined without pairs of two identities, and so "
            "are accuracy and TAR at FAR"
        )
    if not same_P.any():
        raise UndefinedMetricsError(
            f"all {len(same_P):,} pairs are of different identities: TAR is undefined without pairs of one identity, "
            "and so is accuracy"
        )


def _count_by_value(
    different: NDArray[np.float64], same: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
    """Distinct scores in ascending order, and how many pairs of each kind have them; both inputs are sorted."""
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
    """Each value once, and how often it is there."""
    last = np.flatnonzero(np.append(ascending[1:] != ascending[:-1], True))
    return ascending[last], np.diff(last, prepend=-1).astype(np.int32)


def _accumulate(counts_V: NDArray[np.int32], corner_V: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The share of pairs at or above each corner, from the highest score down, after a first point of none."""
    above_V = np.cumsum(counts_V[::-1], dtype=np.int64)
    share: NDArray[np.float64] = np.append(0, above_V[corner_V[::-1]]) / above_V[-1]
    return share
