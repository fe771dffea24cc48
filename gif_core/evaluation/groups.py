"""Groups of one benchmark, as in RFW: the worst of them, their spread, and error rates at one common threshold."""

# Shapes: P pairs.

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gif_core.evaluation.results import SetResult
from gif_core.protocols import measure_roc

COMMON_FMR: Final = 1e-3
"""False match rate over the pairs of all groups at which the common threshold is set."""
GROUP_PROTOCOL: Final = "groups-1"
Distances = tuple[NDArray[np.float64], NDArray[np.bool_]]
"""Squared distances of pairs, and whether each is of one identity."""


def compare_groups(results: Iterable[SetResult]) -> dict[str, dict[str, Any]]:
    """The entry of `scores.json` for each benchmark with groups, by its name; sets without scores are left out."""
    members: dict[str, list[SetResult]] = {}
    for result in results:
        if result.group and result.same_P is not None:
            members.setdefault(result.group, []).append(result)
    return {name: _describe(sets) for name, sets in members.items()}


def _describe(sets: Sequence[SetResult]) -> dict[str, Any]:
    systems = [name for name in sets[0].systems if all(name in each.systems for each in sets)]
    return {
        "protocol": GROUP_PROTOCOL,
        "flags": {"common_fmr": COMMON_FMR},
        "systems": {name: _compare(name, sets) for name in systems},
    }


def _compare(system: str, sets: Sequence[SetResult]) -> dict[str, Any]:
    """Metrics of one system: of the groups together, and of each."""
    accuracies = {each.title: each.systems[system].metrics["accuracy"] for each in sets}
    pairs = {each.title: _distances(each, system) for each in sets}
    threshold = common_threshold(pairs)
    groups = {
        title: {"accuracy": accuracies[title]} | error_rates(*pairs[title], threshold=threshold) for title in pairs
    }
    values = list(accuracies.values())
    worst = min(accuracies, key=lambda title: accuracies[title])
    return {
        "mean_accuracy": float(np.mean(values)),
        "worst_group": worst,
        "worst_accuracy": accuracies[worst],
        "accuracy_spread": max(values) - min(values),
        "accuracy_std": float(np.std(values)),
        "common_threshold": threshold,
        "worst_fmr": max(each["fmr"] for each in groups.values()),
        "worst_fnmr": max(each["fnmr"] for each in groups.values()),
        "groups": groups,
    }


def _distances(result: SetResult, system: str) -> Distances:
    distance_P, same_P = result.systems[system].distance_P, result.same_P
    assert distance_P is not None
    assert same_P is not None
    return distance_P, same_P


def common_threshold(groups: Mapping[str, Distances], fmr: float = COMMON_FMR) -> float:
    """The squared distance at which the false match rate over all groups is closest to `fmr`."""
    distance_P, same_P = (np.concatenate(parts) for parts in zip(*groups.values(), strict=True))
    roc = measure_roc(-distance_P, same_P)
    far, distance = roc.far[1:], roc.distance[1:]  # the first point accepts nothing, at no finite distance
    return float(distance[::-1][np.abs(far[::-1] - fmr).argmin()])


def error_rates(distance_P: NDArray[np.float64], same_P: NDArray[np.bool_], *, threshold: float) -> dict[str, float]:
    """False match and false non-match rate; a match is at most the threshold apart."""
    match_P = distance_P <= threshold
    return {"fmr": float(match_P[~same_P].mean()), "fnmr": float((~match_P[same_P]).mean())}
