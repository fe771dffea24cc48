"""Reporting as a cached task, whose page Prefect's UI links to."""

from prefect.artifacts import create_markdown_artifact

from gif_core.artifacts import Artifact, ArtifactStore, Draft
from gif_core.report_scores import headlines
from gif_core.reporting import write_report
from gif_core.scored_runs import load_beside, load_run
from schemas.run import RunConfig
from tasks.stage import Inputs, stage_task

PAGE = "report.html"


def show_link(report: Artifact, inputs: Inputs) -> None:
    """The headline figures of the run and where its page is, as an artifact in Prefect's UI."""
    where = f"{report.ref.uri}/{report.stored(PAGE).path}"
    rows = [f"| {name} | {value} |" for name, value in headlines(inputs)]
    lines = [f"[The report of this run]({where})", "", f"`{where}`", "", "| figure | |", "|---|---|", *rows]
    create_markdown_artifact(key="report", markdown="\n".join(lines), description="The report of this run")


@stage_task("reporting", show=show_link)
def reporting(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """All artifacts of the run become one HTML page, with other runs beside it."""
    store = ArtifactStore(config.store)
    beside = load_beside(store, draft.settings["beside"])
    runs = [load_run(store, inputs["evaluation"].ref.key), *beside] if beside else []
    write_report(draft.folder / PAGE, config, inputs, runs)
    draft.metrics["bytes"] = (draft.folder / PAGE).stat().st_size
    draft.metrics["runs_beside"] = len(beside)
