"""Known or unknown: the score from which on somebody counts as enrolled, and the metrics of identification with it."""

# Shapes: E images of enrolled identities, U images of unknown identities, K candidates of an image.

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.recognition.gallery import Candidates

RANKS: Final = (1, 5)


@dataclass(frozen=True, slots=True)
class OpenSetMetrics:
    """Identification of identities of whom some are enrolled and some are not."""

    rank: dict[int, float]
    """Share of enrolled identities' images whose person is among the first so many candidates."""
    threshold: float
    """The score from which on the first candidate counts as found."""
    fnir: float
    """Share of enrolled identities' images that are missed at the threshold: below it, or the first is another."""
    fpir_of_others: float | None
    """FPIR when the threshold is calibrated on other unknown identities: each half of them judged
    by the other half's. None when there is but one."""


def calibrate(best_U: NDArray[np.floating], fpir: float) -> float:
    """The lowest threshold that no more than a share of `fpir`, below 1, of the unknown images reach."""
    if not len(best_U):
        raise ValueError("a threshold needs images of identities who are not enrolled")
    highest_U = -np.sort(-best_U.astype(np.float32))
    return float(np.nextafter(highest_U[int(fpir * len(best_U))], np.float32(np.inf)))


def measure_open_set(
    enrolled: Candidates,
    unknown: Candidates,
    person_E: NDArray[np.int64],
    stranger_U: NDArray[np.int64],
    *,
    fpir: float,
) -> OpenSetMetrics:
    """The metrics of one way of finding candidates; `person_E` and `stranger_U` say who is on the images."""
    hit_EK = enrolled.identities_BK == person_E[:, None]
    best_E, best_U = enrolled.scores_BK[:, 0], unknown.scores_BK[:, 0]
    threshold = calibrate(best_U, fpir)
    return OpenSetMetrics(
        rank={rank: float(hit_EK[:, :rank].any(axis=1).mean()) for rank in RANKS},
        threshold=threshold,
        fnir=float(1 - (hit_EK[:, 0] & (best_E >= threshold)).mean()),
        fpir_of_others=_cross_check(best_U, stranger_U, fpir),
    )


def _cross_check(best_U: NDArray[np.floating], stranger_U: NDArray[np.int64], fpir: float) -> float | None:
    """Every second unknown person against the threshold of the others."""
    _, place_U = np.unique(stranger_U, return_inverse=True)
    half_U = place_U % 2 == 0
    if half_U.all():
        return None
    wrong = [np.sum(best_U[part] >= calibrate(best_U[~part], fpir)) for part in (half_U, ~half_U)]
    return float(sum(wrong) / len(best_U))


def open_set_metrics(result: OpenSetMetrics, fpir: float) -> dict[str, float]:
    """The metrics of identification among the enrolled by their names."""
    metrics = {f"rank_{rank}": share for rank, share in result.rank.items()}
    metrics |= {f"fnir_at_fpir_{fpir:g}": result.fnir, "threshold": result.threshold}
    return metrics if result.fpir_of_others is None else metrics | {"fpir_of_others": result.fpir_of_others}
