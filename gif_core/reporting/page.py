"""Writes the HTML pages: the report of a run, the comparison of runs, and others. They work without a network."""

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
from gif_core.reporting.comparison import Table, tabulate
from gif_core.reporting.conclusions import conclude
from gif_core.reporting.scored_runs import ScoredRun
from gif_core.reporting.sections.codes import show_codes
from gif_core.reporting.sections.faces import show_faces
from gif_core.reporting.sections.glance import show_glance
from gif_core.reporting.sections.inputs import Inputs, Shown
from gif_core.reporting.sections.lineage import show_artifacts, show_reproduce
from gif_core.reporting.sections.scores import show_errors, show_published, show_scores
from gif_core.reporting.sections.training import show_head_cost, show_training
from gif_core.reporting.sections.vectors import show_vectors
from gif_core.runtime import formatting
from schemas.run import RunConfig
from schemas.stages import StageName

SECTIONS: Final[Mapping[str, Callable[[RunConfig, Inputs], Shown]]] = {
    "glance": show_glance,
    "scores": show_scores,
    "errors": show_errors,
    "published": show_published,
    "faces": show_faces,
    "vectors": show_vectors,
    "codes": show_codes,
    "training": show_training,
    "cost": show_head_cost,
    "artifacts": show_artifacts,
    "reproduce": show_reproduce,
}
"""The sections of the report by their name in the template; section `beside` shows other runs."""
THIS_RUN: Final = "This run"


def write_report(
    path: Path, config: RunConfig, inputs: Mapping[StageName, Artifact], runs: Sequence[ScoredRun] = ()
) -> None:
    """Write the report of a run; the first of `runs` is this run, the others are shown beside it.

    The same artifacts give the same bytes: every date on the page is that of an artifact.
    """
    shown = {name: show(config, inputs) for name, show in SECTIONS.items()}
    shown["beside"] = {"table": _tabulate(runs, THIS_RUN) if runs else None, "asked": config.reporting.compare}
    shown["glance"]["conclusions"] = conclude(config, runs)
    write_page(path, "report.html", shown | {"plotlyjs": Markup(get_plotlyjs())})


def write_comparison(path: Path, runs: Sequence[ScoredRun], names: Sequence[str]) -> None:
    """Write a page that compares runs side by side."""
    write_page(path, "comparison.html", {"table": tabulate(runs, names)})


def _tabulate(runs: Sequence[ScoredRun], first: str) -> Table:
    return tabulate(runs, [first, *(run.evaluation.key[:8] for run in runs[1:])])


def write_page(path: Path, template: str, shown: Mapping[str, Any]) -> None:
    """Fill a template with these values."""
    path.write_text(_environment().get_template(template).render(shown), encoding="utf-8")


def _environment() -> Environment:
    """Create the template environment; all values are escaped, because labels come from data."""
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
    """Return a figure as JSON that cannot close the script element around it."""
    return htmlsafe_json_dumps(json.loads(figure.to_json()))
