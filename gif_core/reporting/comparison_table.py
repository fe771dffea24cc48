"""Runs side by side as a table of text: a column for each run, a row for each difference, score and cost."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gif_core.reporting.scored_runs import ScoredRun, Way, differing_settings, shared_metrics
from gif_core.runtime import duration, metric_name, moment, percent, set_name, thousands

NOTHING: Final = "–"
MOST_SETTINGS: Final = 30
LONGEST: Final = 40
"""Characters of a setting."""


@dataclass(frozen=True)
class Row:
    """A line of the table; `best` are the columns that no other column surpasses, where that means anything."""

    label: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Table:
    """Columns are runs; `groups` has the rows of settings, scores and cost."""

    names: tuple[str, ...]
    dates: tuple[str, ...]
    keys: tuple[str, ...]
    groups: dict[str, tuple[Row, ...]]
    hidden: int = 0
    """Settings that differ too and are not shown."""


def tabulate(runs: Sequence[ScoredRun], names: Sequence[str]) -> Table:
    """The table of these runs, which have these names."""
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


def _setting_row(runs: Sequence[ScoredRun], name: str) -> Row:
    return Row(name, tuple(_write(run.settings.get(name)) for run in runs))


def _score_rows(runs: Sequence[ScoredRun]) -> Iterator[Row]:
    """The metrics of every set. Where it was measured in different ways these stand above, and no metric is best."""
    for title, names in shared_metrics(runs).items():
        ways = [run.ways.get(title) if run.scores.get(title) else None for run in runs]
        alike = len({way for way in ways if way}) < 2
        if not alike:
            yield Row(f"{set_name(title)}: measured by", tuple(_write_way(way, ways) for way in ways))
        for name in names:
            yield _score_row(runs, title, name, alike=alike)


def _write_way(way: Way | None, ways: Sequence[Way | None]) -> str:
    """Protocol and flags, and which images when there are several."""
    if way is None:
        return NOTHING
    alike = len({each.basis for each in ways if each}) == 1
    return way.words if alike else f"{way.words}; images {hashlib.sha256(way.basis.encode()).hexdigest()[:6]}"


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
    """Nothing is best where all are equal, or only one has a value."""
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
