"""Runs side by side as a table of text: a column per run, a row per differing setting, score and cost."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gif_core.reporting.scored_runs import IDENTIFICATION, Measurement, ScoredRun
from gif_core.runtime import duration, metric_name, moment, percent, set_name, thousands

METRICS: Final[tuple[str, ...]] = (
    "accuracy",
    "tar_at_far_0.01",
    "tar_at_far_0.001",
    "tar_at_far_0.0001",
    "tpir_at_fpir_0.01",
    "rank_1",
)
"""Metrics shown for each set that has them."""
NOTHING: Final = "–"
MOST_SETTINGS: Final = 30
LONGEST: Final = 40
"""Characters after which a setting is cut."""


@dataclass(frozen=True)
class Row:
    """A row of the table; `best` are the columns with the best value, if the values are comparable."""

    label: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Table:
    """Columns are runs; `groups` holds the rows of settings, scores and cost."""

    names: tuple[str, ...]
    dates: tuple[str, ...]
    keys: tuple[str, ...]
    groups: dict[str, tuple[Row, ...]]
    hidden: int = 0
    """Number of differing settings that are not shown."""


def tabulate(runs: Sequence[ScoredRun], names: Sequence[str]) -> Table:
    """Return the table of these runs under these names."""
    differing = differing_settings(runs)
    groups = {
        "What differs": tuple(_setting_row(runs, name) for name in differing[:MOST_SETTINGS]),
        "Scores": tuple(_score_rows(runs)),
        "Cost of training": _cost_rows(runs),
    }
    return Table(
        names=tuple(names),
        dates=tuple(moment(run.evaluation.created_at) for run in runs),
        keys=tuple(run.evaluation.key for run in runs),
        groups={title: rows for title, rows in groups.items() if rows},
        hidden=max(0, len(differing) - MOST_SETTINGS),
    )


def differing_settings(runs: Sequence[ScoredRun]) -> list[str]:
    """Return the names of the settings that differ between runs, in the order of the stages."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [name for name in names if any(run.settings.get(name) != runs[0].settings.get(name) for run in runs)]


def shared_metrics(runs: Sequence[ScoredRun]) -> dict[str, list[str]]:
    """Return the headline metrics that at least one run has, by set."""
    sets = dict.fromkeys(title for run in runs for title in run.scores)
    there = {title: {name for run in runs for name in run.scores.get(title, {})} for title in sets}
    ranked = {title: [name for name in METRICS if name in names] for title, names in there.items()}
    for title, names in there.items():
        if title.startswith(IDENTIFICATION):
            ranked[title] += sorted(name for name in names if name.startswith("fnir_"))
    return {title: names for title, names in ranked.items() if names}


def _setting_row(runs: Sequence[ScoredRun], name: str) -> Row:
    return Row(name, tuple(_write(run.settings.get(name)) for run in runs))


def _score_rows(runs: Sequence[ScoredRun]) -> Iterator[Row]:
    """Yield the metrics of every set; if runs were measured differently, a row says how and no metric is best."""
    for title, names in shared_metrics(runs).items():
        measurements = [run.measurements.get(title) if run.scores.get(title) else None for run in runs]
        alike = len({each for each in measurements if each}) < 2
        if not alike:
            cells = tuple(_write_measurement(each, measurements) for each in measurements)
            yield Row(f"{set_name(title)}: measured by", cells)
        for name in names:
            yield _score_row(runs, title, name, alike=alike)


def _write_measurement(own: Measurement | None, all_runs: Sequence[Measurement | None]) -> str:
    """Return protocol and flags, and a digest of the images if they differ between runs."""
    if own is None:
        return NOTHING
    alike = len({each.basis for each in all_runs if each}) == 1
    return own.words if alike else f"{own.words}; images {hashlib.sha256(own.basis.encode()).hexdigest()[:6]}"


def _score_row(runs: Sequence[ScoredRun], title: str, metric: str, *, alike: bool) -> Row:
    values = [run.scores.get(title, {}).get(metric) for run in runs]
    spread = [run.scores.get(title, {}).get(f"{metric}_std") for run in runs]
    cells = [
        NOTHING if value is None else percent(value) + (f" ± {percent(std)}" if std is not None else "")
        for value, std in zip(values, spread, strict=True)
    ]
    best = _best(values, min if metric.startswith("fnir_") else max) if alike else frozenset()
    return Row(f"{set_name(title)}: {metric_name(metric)}", tuple(cells), best)


def _cost_rows(runs: Sequence[ScoredRun]) -> tuple[Row, ...]:
    speeds = [run.training.metrics.get("images_per_second") for run in runs]
    steps = [run.training.metrics.get("steps") for run in runs]
    rows = (
        Row("Images per second", tuple(_number(value) for value in speeds)),
        Row("Steps", tuple(_number(value) for value in steps)),
        Row("Took", tuple(duration(run.training.seconds) for run in runs)),
        Row("Parameters of the head", tuple(_number(run.head_parameters) for run in runs)),
    )
    return tuple(row for row in rows if set(row.cells) != {NOTHING})


def _best(values: Sequence[float | None], choose: Callable[[list[float]], float]) -> frozenset[int]:
    """Return the columns with the best value; none if all are equal or only one has a value."""
    there = [value for value in values if value is not None]
    if len(set(there)) < 2:
        return frozenset()
    best = choose(there)
    return frozenset(place for place, value in enumerate(values) if value == best)


def _number(value: Any) -> str:
    return thousands(value) if isinstance(value, int | float) else NOTHING


def _write(value: Any) -> str:
    if value is None:
        return NOTHING
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
