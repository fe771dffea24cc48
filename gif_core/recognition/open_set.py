"""Known or unknown: the score threshold of open-set identification, and the metrics at it."""

# Shapes: E images of enrolled identities, U images of unknown identities, B either of them, K
# candidates of an image.

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.recognition.gallery import Candidates

RANKS: Final = (1, 5)


@dataclass(frozen=True, slots=True)
class OpenSetMetrics:
    """Metrics of open-set identification, where only some identities are enrolled."""

    rank: dict[int, float]
    """Share of enrolled images whose identity is among the first `rank` candidates."""
    threshold: float
    """A first candidate with at least this score counts as found."""
    fnir: float
    """Share of enrolled images missed at the threshold: the first candidate is below it, or another identity."""
    fpir_of_others: float | None
    """FPIR when the threshold is calibrated on other unknown identities: each half is tested at the threshold of the
    other half. None if there is only one."""


def calibrate_threshold(best_U: NDArray[np.floating], fpir: float) -> float:
    """The lowest threshold that at most a share `fpir` (below 1) of the unknown images reach."""
    if not len(best_U):
        raise ValueError("calibrating a threshold needs images of identities that are not enrolled")
    highest_U = -np.sort(-best_U.astype(np.float32))
    return float(np.nextafter(highest_U[int(fpir * len(best_U))], np.float32(np.inf)))


def measure_open_set(
    enrolled: Candidates,
    unknown: Candidates,
    identity_E: NDArray[np.int64],
    identity_U: NDArray[np.int64],
    *,
    fpir: float,
) -> OpenSetMetrics:
    """The metrics of one method; `identity_E` and `identity_U` are the true identities of the images."""
    hit_EK = enrolled.identities_BK == identity_E[:, None]
    best_E, best_U = enrolled.scores_BK[:, 0], unknown.scores_BK[:, 0]
    threshold = calibrate_threshold(best_U, fpir)
    return OpenSetMetrics(
        rank={rank: float(hit_EK[:, :rank].any(axis=1).mean()) for rank in RANKS},
        threshold=threshold,
        fnir=float(1 - (hit_EK[:, 0] & (best_E >= threshold)).mean()),
        fpir_of_others=_cross_check(best_U, identity_U, fpir),
    )


def _cross_check(best_U: NDArray[np.floating], identity_U: NDArray[np.int64], fpir: float) -> float | None:
    """FPIR of each half of the unknown identities at the threshold of the other half."""
    _, place_U = np.unique(identity_U, return_inverse=True)
    half_U = place_U % 2 == 0
    if half_U.all():
        return None
    wrong = [np.sum(best_U[part] >= calibrate_threshold(best_U[~part], fpir)) for part in (half_U, ~half_U)]
    return float(sum(wrong) / len(best_U))


def open_set_metrics(result: OpenSetMetrics, fpir: float) -> dict[str, float]:
    """The metrics of open-set identification by name."""
    metrics = {f"rank_{rank}": share for rank, share in result.rank.items()}
    metrics |= {f"fnir_at_fpir_{fpir:g}": result.fnir, "threshold": result.threshold}
    return metrics if result.fpir_of_others is None else metrics | {"fpir_of_others": result.fpir_of_others}
