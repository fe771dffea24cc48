"""How far the metrics of two models may differ by chance: a paired bootstrap over the identities of a set.

A replica draws as many identities as there are, with replacement. An identity drawn k times has weight k; a pair of two
identities has the product of their weights (the pigeonhole bootstrap), because pairs that share an identity are not
independent. Both models get the same draws, so that what is hard for both cancels.
"""

# Shapes: P pairs, U identities, Q probes in a gallery, K folds, T thresholds, R replicas.

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.protocols import THRESHOLDS_T

DRAWS: Final = 701
"""Second element of the seed of the draws."""
Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]
Metric = Callable[[Doubles], float]
"""Maps the weight of every identity to a metric; NaN when it is undefined for the draw."""


@dataclass(frozen=True)
class PairScores:
    """The stored pairs of one set and model; `different` also counts the impostor pairs that are not stored."""

    pair_P: Rows
    score_P: Doubles
    same_P: NDArray[np.bool_]
    left_P: Rows
    right_P: Rows
    pairs: int
    different: int

    def weigh(self, weight_U: Doubles) -> Doubles:
        """Return the weight of every pair."""
        left_P = weight_U[self.left_P]
        return np.where(self.left_P == self.right_P, left_P, left_P * weight_U[self.right_P])


@dataclass(frozen=True)
class Searches:
    """The probes of one set and model in one gallery."""

    identity_Q: Rows
    enrolled_Q: NDArray[np.bool_]
    own_Q: Doubles
    other_Q: Doubles
    rank_Q: Rows


def accuracy(given: PairScores, folds: int) -> Metric:
    """Return the accuracy on pairs with the threshold of the other folds, as `verify_distances` computes it."""
    bins = len(THRESHOLDS_T) + 1
    fold_P = np.repeat(np.arange(folds), [len(part) for part in np.array_split(np.arange(given.pairs), folds)])
    place_P = fold_P[given.pair_P] * bins + np.searchsorted(THRESHOLDS_T, -given.score_P, side="right")

    def count(weight_P: Doubles) -> Doubles:
        counted_KT = np.bincount(place_P, weight_P, folds * bins).reshape(folds, bins)
        below_KT: Doubles = counted_KT.cumsum(axis=1)[:, :-1]
        return below_KT

    def measure(weight_U: Doubles) -> float:
        weight_P = given.weigh(weight_U)
        different_P = weight_P * ~given.same_P
        size_K = np.bincount(fold_P[given.pair_P], weight_P, folds)
        different_K1 = np.bincount(fold_P[given.pair_P], different_P, folds)[:, None]
        correct_KT = count(weight_P * given.same_P) + different_K1 - count(different_P)
        best_K = (correct_KT.sum(axis=0) - correct_KT).argmax(axis=1)
        there_K = size_K > 0
        found_K = correct_KT[np.arange(folds), best_K][there_K] / size_K[there_K]
        return float(found_K.mean()) if len(found_K) else np.nan

    return measure


def tar_at_far(given: PairScores, far: float) -> Metric:
    """Return TAR at the achievable FAR closest to `far`; pairs that are not stored score lower than all stored ones.

    All points count, including the collinear ones that the reported metric drops.
    """
    order_P = np.argsort(-given.score_P, kind="stable")
    kept = max(int((~given.same_P).sum()), 1)

    def measure(weight_U: Doubles) -> float:
        weight_P = given.weigh(weight_U)[order_P]
        same_P = weight_P * given.same_P[order_P]
        accepted_P = np.append(0.0, (weight_P - same_P).cumsum())
        found_P = np.append(0.0, same_P.cumsum())
        if not accepted_P[-1] or not found_P[-1]:
            return np.nan
        rate_P = accepted_P / (accepted_P[-1] if kept == given.different else given.different)
        nearest = len(rate_P) - 1 - int(np.abs(rate_P[::-1] - far).argmin())
        return float(found_P[nearest] / found_P[-1])

    return measure


def rank_share(galleries: Sequence[Searches], rank: int) -> Metric:
    """Return the share of all probes whose identity is among the first `rank` results of a gallery."""

    def measure(weight_U: Doubles) -> float:
        hits = sum(
            float(weight_U[each.identity_Q] @ (each.enrolled_Q & (each.rank_Q < rank)).astype(float))
            for each in galleries
        )
        total = float(weight_U[galleries[0].identity_Q].sum())
        return hits / total if total else np.nan

    return measure


def tpir_at_fpir(galleries: Sequence[Searches], fpir: float) -> Metric:
    """Return TPIR at the threshold that accepts a share `fpir` of the impostor probes; mean over the galleries."""
    return lambda weight_U: float(np.mean([_tpir(each, weight_U[each.identity_Q], fpir) for each in galleries]))


def _tpir(given: Searches, weight_Q: Doubles, fpir: float) -> float:
    impostor = ~given.enrolled_Q
    order = np.argsort(-given.other_Q[impostor], kind="stable")
    passed, mates = weight_Q[impostor][order].cumsum(), weight_Q[given.enrolled_Q].sum()
    if not len(passed) or not passed[-1] or not mates:
        return np.nan
    place = min(int(np.searchsorted(passed, max(np.floor(fpir * passed[-1]), 1.0))), len(order) - 1)
    threshold = given.other_Q[impostor][order][place]
    hits_Q = given.enrolled_Q & (given.own_Q > given.other_Q) & (given.own_Q > threshold)
    return float(weight_Q[hits_Q].sum() / mates)


def interval_of_difference(
    champion: Metric, challenger: Metric, identities: int, *, replicas: int, confidence: float, seed: int
) -> tuple[float, float]:
    """Return the percentile interval of challenger minus champion over the replicas."""
    difference_R = np.array(
        [challenger(weight_U) - champion(weight_U) for weight_U in draw(identities, replicas, seed)]
    )
    defined_R = difference_R[np.isfinite(difference_R)]
    if not len(defined_R):
        return -np.inf, np.inf
    low, high = np.quantile(defined_R, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def draw(identities: int, replicas: int, seed: int) -> Iterator[Doubles]:
    """Yield how often each identity is drawn; a function of the seed and the replica."""
    rng = np.random.default_rng([seed, DRAWS])
    for _ in range(replicas):
        yield np.bincount(rng.integers(identities, size=identities), minlength=identities).astype(float)
