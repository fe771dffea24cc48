"""Prices of clusters at which about `capacity` rows prefer each: the dual of the bounded assignment.

The dual is not smooth, and descent on it stalls. With a softmax over the clusters instead of each row's best one it is
smooth, and Newton's method needs few steps; the temperature falls until hardly any row is between two clusters.
"""

# Shapes: N rows, K clusters, F clusters whose price may move.

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]

TEMPERATURES: Final = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
"""Of the softmax, in units of the range of the similarities."""
STEPS: Final = 12
"""Most Newton steps at one temperature; the exact repair of the assignment settles what is left."""
_WRONG_ROWS, _FARTHEST, _SHORTENINGS, _DAMPING = 1e-3, 20.0, 6, 1e-6


def clearing_prices(similarity_KN: Floats, capacity: int) -> Floats:
    """Return a price for each cluster, 0 where fewer than `capacity` rows prefer it."""
    price_K: Floats = np.zeros(len(similarity_KN))
    scale = float(np.ptp(similarity_KN))
    if not 0 < scale < np.inf:
        return price_K
    for temperature in TEMPERATURES:
        price_K = _descend(similarity_KN, capacity, price_K, temperature * scale)
    return price_K


class _Demand(NamedTuple):
    """What rows want at some prices: the dual, and the share of each cluster in each row."""

    dual: float
    share_KN: Floats


def _descend(similarity_KN: Floats, capacity: int, price_K: Floats, temperature: float) -> Floats:
    """Newton's method on the dual at one temperature, with prices that are at least 0."""
    demand = _demand(similarity_KN, capacity, price_K, temperature)
    for _ in range(STEPS):
        size_K = demand.share_KN.sum(axis=1, dtype=np.float64)
        free_K = (price_K > 0) | (size_K > capacity)
        if np.abs(size_K - capacity)[free_K].sum() <= max(0.5, _WRONG_ROWS * similarity_KN.shape[1]):
            break
        move_K = _newton_move(demand.share_KN, size_K, capacity, free_K, temperature)
        move_K *= min(1.0, _FARTHEST * temperature / np.abs(move_K).max())
        for _ in range(_SHORTENINGS):
            moved_K = np.maximum(price_K + move_K, 0)
            after = _demand(similarity_KN, capacity, moved_K, temperature)
            if after.dual < demand.dual:
                break
            move_K /= 4
        else:
            break
        price_K, demand = moved_K, after
    return price_K


def _demand(similarity_KN: Floats, capacity: int, price_K: Floats, temperature: float) -> _Demand:
    kind = similarity_KN.dtype.type
    share_KN = similarity_KN - price_K[:, None].astype(kind)
    best_N = share_KN.max(axis=0)
    share_KN -= best_N
    share_KN *= kind(1 / temperature)
    np.exp(share_KN, out=share_KN)
    total_N = share_KN.sum(axis=0)
    share_KN /= total_N
    soft_best = best_N.sum(dtype=np.float64) + temperature * np.log(total_N).sum(dtype=np.float64)
    return _Demand(float(soft_best + capacity * price_K.sum()), share_KN)


def _newton_move(
    share_KN: Floats, size_K: Floats, capacity: int, free_K: npt.NDArray[np.bool_], temperature: float
) -> Floats:
    """Return the change of all prices that would balance the free clusters if sizes were linear in the prices."""
    share_FN, size_F = share_KN[free_K], size_K[free_K]
    slope_FF = -(share_FN @ share_FN.T).astype(np.float64)
    slope_FF[np.diag_indices(len(size_F))] += size_F + _DAMPING * share_KN.shape[1]
    move_K = np.zeros(len(size_K))
    move_K[free_K] = temperature * np.linalg.solve(slope_FF, size_F - capacity)
    return move_K
