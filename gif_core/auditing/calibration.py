"""Thresholds found on the faces themselves: how alike images and groups of one person are, and of two."""

# Shapes: S measurements of one person, T of two, Q groups with their nearest and second nearest identity.

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
ORDINARY: Final = 0.95
"""Share of the distances between parts of one person that are ordinary."""


@dataclass(frozen=True)
class Accepted:
    """The distance up to which the nearest identity counts as the same person, and what is expected at it."""

    threshold: float
    found: int
    precision: float
    """Estimated share of what is found that is right."""


def best_threshold(same_S: Floats, different_T: Floats) -> float:
    """The cosine at which the rates of both errors add up to the least.

    A few wrong labels on either side add the same rate at every threshold near the best one, so they do not move it.
    """
    cosines = np.concatenate([same_S, different_T])
    order = np.argsort(cosines, kind="stable")
    is_same = order < len(same_S)
    errors = np.cumsum(is_same) / len(same_S) - np.cumsum(~is_same) / len(different_T)
    place = int(np.argmin(errors))
    after = order[min(place + 1, len(order) - 1)]
    return float((cosines[order[place]] + cosines[after]) / 2)


def accept(nearest_Q: Floats, second_Q: Floats, *, precision: float, ordinary: float) -> Accepted:
    """The largest distance up to which the estimated precision is high enough, at most the ordinary one.

    The second nearest identity is almost never the same person, so wrong nearest ones are expected at a distance as
    often as second nearest are, times the share of nearest ones that are wrong. That share is estimated where the same
    person is rarely found: beyond the ordinary distance.
    """
    beyond = max(int((second_Q > ordinary).sum()), 1)
    wrong_share = min(float((nearest_Q > ordinary).sum()) / beyond, 1.0)
    targets = np.sort(nearest_Q[nearest_Q <= ordinary])
    found = np.arange(1, len(targets) + 1)
    wrong = wrong_share * np.searchsorted(np.sort(second_Q), targets, side="right")
    estimates = 1 - np.minimum(wrong / found, 1)
    good = np.flatnonzero(estimates >= precision)
    if not len(good):
        return Accepted(0.0, 0, 1.0)
    place = int(good[-1])
    return Accepted(float(targets[place]), int(found[place]), float(estimates[place]))
