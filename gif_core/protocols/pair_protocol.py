"""Are two images of one person? The pair protocol of LFW, CFP-FP, AgeDB, CALFW and CPLFW."""

# Shapes: N features, P pairs, D dimensions, T thresholds, K folds.

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gif_core.protocols.roc import Roc, UndefinedMetricsError, check_kinds, check_scores, measure_roc, tar_at_far

Features = NDArray[np.floating[Any]] | NDArray[np.uint8]
"""Rows whose direction is compared; bytes are raw pixels."""
THRESHOLDS_T: Final = np.arange(0, 4, 0.01)
FALSE_ACCEPT_RATES: Final = (1e-1, 1e-2, 1e-3, 1e-4)
PAIR_PROTOCOL: Final = "pairs-1"
"""Raise its number when the same features would get other metrics."""
_CHUNK_NUMBERS: Final = 2**22


@dataclass(frozen=True, slots=True)
class Verification:
    """The metrics of one set of pairs."""

    accuracy: float
    """Mean over the folds."""
    accuracy_std: float
    """Over the folds, ddof 0."""
    threshold: float
    """The first squared distance with the best accuracy on all pairs."""
    threshold_far: float
    """Share of the different pairs below the threshold."""
    threshold_tar: float
    """Share of the same pairs below it."""
    tar_at_far: dict[float, float]
    """At the reachable false accept rate nearest to each key: with P different pairs a step is 1/P."""
    roc: Roc


def verify_pairs(
    left_PD: NDArray[np.floating[Any]],
    right_PD: NDArray[np.floating[Any]],
    same_P: NDArray[np.bool_],
    folds: int = 10,
) -> Verification:
    """Pair verification of features whose row i on the left and on the right are pair i."""
    rows_P = np.arange(len(same_P))
    if not len(left_PD) == len(right_PD) == len(same_P):
        raise ValueError(f"{len(left_PD)} left and {len(right_PD)} right features for {len(same_P)} pairs")
    return verify_distances(_distances(left_PD, rows_P, right_PD, rows_P), same_P, folds)


def verify_distances(distance_P: NDArray[np.float64], same_P: NDArray[np.bool_], folds: int = 10) -> Verification:
    """Pair verification of squared distances between features of unit length.

    A match is strictly below the threshold; the first best of 0, 0.01, … on all folds but one is applied to
    that one; folds are consecutive and unshuffled.
    """
    same_P = np.asarray(same_P, dtype=np.bool_)
    check_pairs(same_P, folds)
    check_scores(distance_P, same_P)
    correct_KT = _count_correct(distance_P, same_P, folds)
    sizes_K = np.array([len(part) for part in np.array_split(same_P, folds)])
    best_K = (correct_KT.sum(axis=0) - correct_KT).argmax(axis=1)
    accuracy_K = correct_KT[np.arange(folds), best_K] / sizes_K
    roc = measure_roc(-distance_P, same_P)
    threshold = float(THRESHOLDS_T[correct_KT.sum(axis=0).argmax()])
    return Verification(
        accuracy=float(accuracy_K.mean()),
        accuracy_std=float(accuracy_K.std()),
        threshold=threshold,
        threshold_far=float((distance_P[~same_P] < threshold).mean()),
        threshold_tar=float((distance_P[same_P] < threshold).mean()),
        tar_at_far={far: tar_at_far(roc, far) for far in FALSE_ACCEPT_RATES},
        roc=roc,
    )


def check_pairs(same_P: NDArray[np.bool_], folds: int) -> None:
    """UndefinedMetricsError when no features could give these pairs metrics."""
    check_kinds(same_P)
    if len(same_P) < folds:
        raise UndefinedMetricsError(f"{len(same_P)} pairs cannot be split into {folds} folds")


def pair_distances(features_ND: Features, left_P: NDArray[np.int64], right_P: NDArray[np.int64]) -> NDArray[np.float64]:
    """Squared distance between the normalised features of each pair of rows, in chunks of little memory."""
    return _distances(features_ND, left_P, features_ND, right_P)


def worst_errors(
    distance_P: NDArray[np.float64], same_P: NDArray[np.bool_], threshold: float, most: int
) -> NDArray[np.int64]:
    """Pairs on which the threshold errs by most: up to `most` false matches, then up to `most` misses."""
    match_P = distance_P < threshold
    false_matches, misses = np.flatnonzero(match_P & ~same_P), np.flatnonzero(~match_P & same_P)
    nearest = false_matches[np.argsort(distance_P[false_matches], kind="stable")]
    furthest = misses[np.argsort(-distance_P[misses], kind="stable")]
    return np.concatenate([nearest[:most], furthest[:most]])


def _distances(
    left_ND: Features,
    left_P: NDArray[np.int64],
    right_ND: Features,
    right_P: NDArray[np.int64],
) -> NDArray[np.float64]:
    distance_P = np.empty(len(left_P))
    rows = max(1, _CHUNK_NUMBERS // max(1, left_ND.shape[1]))
    for start in range(0, len(left_P), rows):
        chunk = slice(start, start + rows)
        difference = _normalize(left_ND[left_P[chunk]]) - _normalize(right_ND[right_P[chunk]])
        distance_P[chunk] = np.square(difference).sum(axis=1)
    return distance_P


def _normalize(rows_PD: Features) -> NDArray[np.float64]:
    """Unit length in float64; a row of zeros stays as it is."""
    numbers_PD = rows_PD.astype(np.float64)
    length_P = np.linalg.norm(numbers_PD, axis=1, keepdims=True)
    return numbers_PD / np.where(length_P == 0, 1.0, length_P)


def _count_correct(distance_P: NDArray[np.float64], same_P: NDArray[np.bool_], folds: int) -> NDArray[np.int64]:
    """Right answers [K, T]: same pairs strictly below the threshold and different pairs at or above it."""
    first_match_P = np.searchsorted(THRESHOLDS_T, distance_P, side="right")
    counts_KT = np.empty((folds, len(THRESHOLDS_T)), dtype=np.int64)
    parts = zip(np.array_split(first_match_P, folds), np.array_split(same_P, folds), strict=True)
    for fold, (first_match, same) in enumerate(parts):
        bins = len(THRESHOLDS_T) + 1
        matched_same = np.bincount(first_match[same], minlength=bins).cumsum()[:-1]
        matched_different = np.bincount(first_match[~same], minlength=bins).cumsum()[:-1]
        counts_KT[fold] = matched_same + (~same).sum() - matched_different
    return counts_KT
