"""Reporting as a cached task, whose page Prefect's UI links to."""

from gif_core.artifacts import ArtifactStore, Draft
from gif_core.reporting import load_beside, load_run, write_report
from schemas.run import RunConfig
from tasks.report_link import PAGE, show_link
from tasks.stage import Inputs, stage_task


@stage_task("reporting", show=show_link)
def reporting(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """All artifacts of the run become one HTML page, with other runs beside it."""
    store = ArtifactStore(config.store)
    beside = load_beside(store, draft.settings["beside"])
    runs = [load_run(store, inputs["evaluation"].ref.key), *beside] if beside else []
    write_report(draft.folder / PAGE, config, inputs, runs)
    draft.metrics["bytes"] = (draft.folder / PAGE).stat().st_size
    draft.metrics["runs_beside"] = len(beside)
