"""What came of a sweep: means over seeds, and paired differences to the first variant with their standard errors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.planning import plan_stages
from gif_core.reporting import ScoredRun, shared_metrics
from gif_core.retraining import NotComparableError, compare
from schemas.errors import GifError
from schemas.retraining import PromotionPolicy
from schemas.run import RunConfig

ONE_DEVIATION: Final = 0.6827
"""Confidence of an interval that reaches one standard deviation to either side."""
REPLICAS: Final = 200
Errors = Mapping[tuple[str, str], float]
"""Standard errors by set and metric."""


@dataclass(frozen=True)
class Line:
    """A variant in a section; differences are to the first variant, over the seeds that both have."""

    variant: str
    seeds: int
    mean: float
    deviation: float | None
    """Standard deviation over seeds; None for a single seed."""
    difference: float | None = None
    seed_error: float | None = None
    """Standard error of the difference over seeds."""
    identity_error: float | None = None
    """Standard error of the difference over the identities of the set, by bootstrap; the mean over seeds."""


@dataclass(frozen=True)
class Section:
    """One metric of one set."""

    set: str
    metric: str
    lines: tuple[Line, ...]


def find_evaluation(store: ArtifactStore, config: RunConfig) -> Artifact | None:
    """The scores of a configuration, if they are stored and what they were made from is there."""
    try:
        plan = plan_stages(store, config)["evaluation"]
    except (GifError, OSError):
        return None
    return store.open(plan.ref) if plan.action == "reuse" else None


def summarise(
    names: Sequence[str], runs: Sequence[Mapping[int, ScoredRun]], errors: Sequence[Errors] | None = None
) -> list[Section]:
    """One section per metric; `runs` are those of each variant by seed, `errors` those of its identities."""
    everything = [run for each in runs for run in each.values()]
    known = errors or [{}] * len(runs)
    return [
        Section(title, metric, tuple(_lines(names, runs, known, (title, metric))))
        for title, metrics in shared_metrics(everything).items()
        for metric in metrics
    ]


def _lines(
    names: Sequence[str], runs: Sequence[Mapping[int, ScoredRun]], errors: Sequence[Errors], what: tuple[str, str]
) -> Iterator[Line]:
    title, metric = what
    values = [
        {seed: scores[metric] for seed, run in each.items() if metric in (scores := run.scores.get(title, {}))}
        for each in runs
    ]
    for number, (name, own, known) in enumerate(zip(names, values, errors, strict=True)):
        if own:
            yield _line(name, own, values[0] if number else {}, known.get(what))


def _line(name: str, own: Mapping[int, float], base: Mapping[int, float], identity_error: float | None) -> Line:
    values = list(own.values())
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    line = Line(name, len(values), float(np.mean(values)), deviation)
    both = [own[seed] - base[seed] for seed in own if seed in base]
    if not both:
        return line
    error = float(np.std(both, ddof=1) / np.sqrt(len(both))) if len(both) > 1 else None
    return Line(name, line.seeds, line.mean, deviation, float(np.mean(both)), error, identity_error)


def compare_identities(base: Mapping[int, Artifact], other: Mapping[int, Artifact]) -> dict[tuple[str, str], float]:
    """Standard errors of the differences over identities: half of the bootstrap interval of one deviation."""
    policy = PromotionPolicy(confidence=ONE_DEVIATION, replicas=REPLICAS)
    found: dict[tuple[str, str], list[float]] = {}
    for seed in base.keys() & other.keys():
        try:
            rows = compare(base[seed], other[seed], policy)
        except NotComparableError:
            continue
        for row in rows:
            found.setdefault((row.set, row.metric), []).append((row.high - row.low) / 2)
    return {name: float(np.mean(halves)) for name, halves in found.items()}
