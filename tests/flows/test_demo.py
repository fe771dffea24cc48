"""The flow `demo` on a real Prefect server: a classifier, then GIF, and what is printed and reported of both."""

import io

import pytest

from flows.cli.output import Console
from flows.cli.tables import show_run
from flows.demo import demo
from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.reporting import conclude_report
from schemas.files import REPORT_FILE
from schemas.loading import load_config
from schemas.run import RunConfig


@pytest.mark.usefixtures("prefect")
def test_the_demo_scores_a_classifier_then_gif_and_ends_with_the_three_lines_that_the_report_begins_with(
    tiny: RunConfig,
) -> None:
    given = tiny.model_dump(mode="json")
    rival = load_config({**given, "training": {**given["training"], "head": "cosface"}})
    record = demo(tiny, rival)
    store = ArtifactStore(tiny.store)
    newest, first = list_runs(store)
    assert newest.run_id == record.run_id
    assert "reporting" not in first.stages
    reused = [stage for stage, done in record.stages.items() if done.action == "reused"]
    assert reused == ["ingestion", "embedding", "separation", "tokenization"], "both are trained on the same codes"
    report = store.open(store.ref("reporting", record.stages["reporting"].key))
    lines = conclude_report(store, tiny, report.manifest)
    assert len(lines) == 3
    assert "CosFace" in lines[0]
    page, terminal = report.path(REPORT_FILE).read_text(), io.StringIO()
    show_run(Console(file=terminal, width=80), store, record)
    shown = " ".join(terminal.getvalue().split())
    for number, line in enumerate(lines, start=1):
        assert f"<li>{line}</li>" in page
        assert f"{number}. {line}" in shown
