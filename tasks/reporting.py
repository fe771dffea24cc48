"""Reporting as a cached task, whose page Prefect's UI links to."""

from gif_core.artifacts import Draft, Inputs
from gif_core.reporting import stage
from schemas.run import RunConfig
from tasks.progress import show
from tasks.report_link import show_link
from tasks.stage import stage_task


@stage_task("reporting", show=show_link)
def reporting(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """All artifacts of the run become one HTML page, with other runs beside it."""
    show(stage.run(config, inputs, draft))
