"""The stage reporting: all artifacts of a run → `report.html`."""

from collections.abc import Generator

from gif_core.artifacts import ArtifactStore, Draft, Inputs
from gif_core.reporting.page import write_report
from gif_core.reporting.scored_runs import load_beside, load_run
from gif_core.runtime import Progress
from schemas.files import REPORT_FILE
from schemas.run import RunConfig


def run(config: RunConfig, inputs: Inputs, draft: Draft) -> Generator[Progress, None, None]:
    """Write one HTML page about the run, with other runs beside it."""
    yield Progress("reporting", 0, 1)
    store = ArtifactStore(config.store)
    beside = load_beside(store, draft.settings["beside"])
    runs = [load_run(store, inputs["evaluation"].ref.key), *beside] if beside else []
    write_report(draft.folder / REPORT_FILE, config, inputs, runs)
    draft.metrics["bytes"] = (draft.folder / REPORT_FILE).stat().st_size
    draft.metrics["runs_beside"] = len(beside)
    yield Progress("reporting", 1, 1)
