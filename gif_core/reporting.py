"""Reporting: all artifacts of a run → one HTML page that needs no network."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from gif_core import formatting, report_codes, report_sections
from gif_core.artifacts import Artifact
from gif_core.report_sections import Inputs, Shown
from schemas.run import RunConfig
from schemas.stages import StageName

SECTIONS: Final[Mapping[str, Callable[[RunConfig, Inputs], Shown]]] = {
    "glance": report_sections.show_glance,
    "scores": report_sections.show_scores,
    "faces": report_sections.show_faces,
    "vectors": report_sections.show_vectors,
    "codes": report_codes.show_codes,
    "training": report_sections.show_training,
    "artifacts": report_sections.show_artifacts,
    "reproduce": report_sections.show_reproduce,
}
"""What the page shows, in order: the template has a section of each name."""


def write_report(path: Path, config: RunConfig, inputs: Mapping[StageName, Artifact]) -> None:
    """Write the page. The same artifacts give the same bytes: every date in it is that of an artifact."""
    shown = {name: show(config, inputs) for name, show in SECTIONS.items()}
    template = _environment().get_template("report.html")
    path.write_text(template.render(shown, plotlyjs=Markup(get_plotlyjs())), encoding="utf-8")


def _environment() -> Environment:
    """Everything that is put into the page is escaped: labels come from data."""
    environment = Environment(
        loader=PackageLoader("gif_core"),
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
