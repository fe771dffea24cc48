"""Reporting as a cached task."""

from gif_core.artifacts import Draft
from gif_core.reporting import write_report
from schemas.run import RunConfig
from tasks.stage import Inputs, stage_task


@stage_task("reporting")
def reporting(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """All artifacts of the run become one HTML page."""
    write_report(draft.folder / "report.html", config, inputs)
    draft.metrics["bytes"] = (draft.folder / "report.html").stat().st_size
