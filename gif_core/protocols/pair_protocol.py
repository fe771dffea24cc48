"""Verification of pairs: the protocol of LFW, CFP-FP, AgeDB, CALFW and CPLFW."""

# Shapes: N features, P pairs, D dimensions, T thresholds, K folds.

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gif_core.protocols.roc import Roc, UndefinedMetricsError, check_kinds, check_scores, measure_roc, tar_at_far

Features = NDArray[np.floating[Any]] | NDArray[np.uint8]
"""Rows that are normalised and compared; uint8 rows are raw pixels."""
THRESHOLDS_T: Final = np.arange(0, 4, 0.01)
FALSE_ACCEPT_RATES: Final = (1e-1, 1e-2, 1e-3, 1e-4)
PAIR_PROTOCOL: Final = "pairs-1"
"""Increase the number when the same features would get different metrics."""
_CHUNK_NUMBERS: Final = 2**22


@dataclass(frozen=True, slots=True)
class Verification:
    """The metrics of one set of pairs."""

    accuracy: float
    """Mean over the folds."""
    accuracy_std: float
    """Standard deviation over the folds (ddof 0)."""
    threshold: float
    """The smallest squared distance with the best accuracy on all pairs."""
    threshold_far: float
    """Share of the different pairs below the threshold."""
    threshold_tar: float
    """Share of the same pairs below the threshold."""
    tar_at_far: dict[float, float]
    """At the achievable false accept rate closest to each key: with P different pairs the resolution is 1/P."""
    roc: Roc


def verify_distances(distance_P: NDArray[np.float64], same_P: NDArray[np.bool_], folds: int = 10) -> Verification:
    """Compute the metrics from squared distances between features of unit length.

    A match is strictly below the threshold. For each fold, the first best threshold of 0, 0.01, … on all other folds
    is applied; folds are consecutive and not shuffled.
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
    """Raise `UndefinedMetricsError` if these pairs have no metrics, whatever the features."""
    check_kinds(same_P)
    if len(same_P) < folds:
        raise UndefinedMetricsError(f"{len(same_P)} pairs cannot be split into {folds} folds")


def pair_distances(features_ND: Features, left_P: NDArray[np.int64], right_P: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the squared distance between the normalised features of each pair, computed in small chunks."""
    distance_P = np.empty(len(left_P))
    rows = max(1, _CHUNK_NUMBERS // max(1, features_ND.shape[1]))
    for start in range(0, len(left_P), rows):
        chunk = slice(start, start + rows)
        difference = _normalize(features_ND[left_P[chunk]]) - _normalize(features_ND[right_P[chunk]])
        distance_P[chunk] = np.square(difference).sum(axis=1)
    return distance_P


def worst_errors(
    distance_P: NDArray[np.float64], same_P: NDArray[np.bool_], threshold: float, most: int
) -> NDArray[np.int64]:
    """Return the pairs furthest on the wrong side of the threshold: up to `most` false matches, then misses."""
    match_P = distance_P < threshold
    false_matches, misses = np.flatnonzero(match_P & ~same_P), np.flatnonzero(~match_P & same_P)
    nearest = false_matches[np.argsort(distance_P[false_matches], kind="stable")]
    furthest = misses[np.argsort(-distance_P[misses], kind="stable")]
    return np.concatenate([nearest[:most], furthest[:most]])


def _normalize(rows_PD: Features) -> NDArray[np.float64]:
    """Normalise in float64; a row of zeros stays zero."""
    numbers_PD = rows_PD.astype(np.float64)
    length_P = np.linalg.norm(numbers_PD, axis=1, keepdims=True)
    return numbers_PD / np.where(length_P == 0, 1.0, length_P)


def _count_correct(distance_P: NDArray[np.float64], same_P: NDArray[np.bool_], folds: int) -> NDArray[np.int64]:
    """Count correct decisions [K, T]: same pairs strictly below the threshold, different pairs at or above it."""
    first_match_P = np.searchsorted(THRESHOLDS_T, distance_P, side="right")
    counts_KT = np.empty((folds, len(THRESHOLDS_T)), dtype=np.int64)
    parts = zip(np.array_split(first_match_P, folds), np.array_split(same_P, folds), strict=True)
    for fold, (first_match, same) in enumerate(parts):
        bins = len(THRESHOLDS_T) + 1
        matched_same = np.bincount(first_match[same], minlength=bins).cumsum()[:-1]
        matched_different = np.bincount(first_match[~same], minlength=bins).cumsum()[:-1]
        counts_KT[fold] = matched_same + (~same).sum() - matched_different
    return counts_KT
