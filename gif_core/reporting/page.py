"""Reporting: all artifacts of a run → one HTML page that needs no network."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from gif_core.artifacts import Artifact
from gif_core.reporting.comparison_table import Table, tabulate
from gif_core.reporting.scored_runs import ScoredRun
from gif_core.reporting.sections import codes as report_codes
from gif_core.reporting.sections import glance as report_sections
from gif_core.reporting.sections import scores as report_scores
from gif_core.reporting.sections import training as report_training
from gif_core.reporting.sections.glance import Inputs, Shown
from gif_core.runtime import formatting
from schemas.run import RunConfig
from schemas.stages import StageName

SECTIONS: Final[Mapping[str, Callable[[RunConfig, Inputs], Shown]]] = {
    "glance": report_sections.show_glance,
    "scores": report_scores.show_scores,
    "errors": report_scores.show_errors,
    "published": report_scores.show_published,
    "faces": report_sections.show_faces,
    "vectors": report_sections.show_vectors,
    "codes": report_codes.show_codes,
    "training": report_training.show_training,
    "cost": report_training.show_head_cost,
    "artifacts": report_sections.show_artifacts,
    "reproduce": report_sections.show_reproduce,
}
"""What the page shows of a run: the template has a section of each name, and one of runs `beside` it."""
THIS_RUN: Final = "This run"


def write_report(
    path: Path, config: RunConfig, inputs: Mapping[StageName, Artifact], runs: Sequence[ScoredRun] = ()
) -> None:
    """Write the page, with the first of `runs`, which is this one, beside the others.

    The same artifacts give the same bytes: every date in it is that of an artifact.
    """
    shown = {name: show(config, inputs) for name, show in SECTIONS.items()}
    shown["beside"] = {"table": _tabulate(runs, THIS_RUN) if runs else None, "asked": config.reporting.compare}
    _write_page(path, "report.html", shown | {"plotlyjs": Markup(get_plotlyjs())})


def write_comparison(path: Path, runs: Sequence[ScoredRun], names: Sequence[str]) -> None:
    """Write a page of runs side by side."""
    _write_page(path, "comparison.html", {"table": tabulate(runs, names)})


def _tabulate(runs: Sequence[ScoredRun], first: str) -> Table:
    return tabulate(runs, [first, *(run.evaluation.key[:8] for run in runs[1:])])


def _write_page(path: Path, template: str, shown: Mapping[str, Any]) -> None:
    path.write_text(_environment().get_template(template).render(shown), encoding="utf-8")


def _environment() -> Environment:
    """Everything that is put into the page is escaped: labels come from data."""
    environment = Environment(
        loader=PackageLoader("gif_core.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        formatting.thousands,
        formatting.percent,
        formatting.decimal,
        formatting.duration,
        formatting.size,
        formatting.moment,
        formatting.plain_name,
        figure_json,
    )
    environment.filters |= {function.__name__: function for function in filters}
    return environment


def figure_json(figure: go.Figure) -> Markup:
    """A figure as JSON that cannot end the script element it stands in."""
    return htmlsafe_json_dumps(json.loads(figure.to_json()))
