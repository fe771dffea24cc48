"""The flow `demo` on a real Prefect server: a classifier and GIF side by side, and what is reported of both."""

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from flows import demo as module
from flows.cli.milestones import milestones_printed
from flows.cli.output import Console
from flows.cli.tables import show_run
from flows.demo import demo
from flows.stages import Run
from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.reporting import conclude_report
from gif_core.runtime import MARK
from gif_core.runtime.process_trees import find_process_tree
from schemas.artifacts import StageRecord
from schemas.errors import GifError
from schemas.execution import ExecutionConfig
from schemas.files import REPORT_FILE
from schemas.loading import load_config
from schemas.run import RunConfig
from schemas.stages import StageName
from tests.conftest import wait_until

Process = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]
SHARED = ["ingestion", "embedding", "separation", "tokenization"]
DEMO = """
import json, sys
from flows.demo import demo
from schemas.loading import load_config

demo(*map(load_config, json.loads(sys.argv[1])))
"""


def with_training(config: RunConfig, **training: Any) -> RunConfig:
    given = config.model_dump(mode="json")
    return load_config({**given, "training": {**given["training"], **training}})


@pytest.mark.usefixtures("prefect")
def test_the_demo_scores_a_classifier_beside_gif_and_ends_with_the_three_lines_that_the_report_begins_with(
    tiny: RunConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = with_training(tiny, head="cosface")
    with milestones_printed():
        record = demo(tiny, rival)
    store = ArtifactStore(tiny.store)
    (other,) = [run for run in list_runs(store) if run.run_id != record.run_id]
    assert other.state == "completed"
    assert "reporting" not in other.stages
    assert [stage for stage, done in record.stages.items() if done.action == "reused"] == []
    reused = [stage for stage, done in other.stages.items() if done.action == "reused"]
    assert reused == SHARED, "both are trained on the same codes"
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
    printed = capsys.readouterr().out
    assert "CosFace: epoch 1 of 1  loss" in printed
    assert " training: epoch 1 of 1  loss" in printed
    assert "CosFace: ingestion" not in printed, "only what it does not share"

    monkeypatch.setattr(module, "run_forked", lambda *_, **__: pytest.fail("the stored rival was started"))
    again = demo(tiny, rival)
    assert {done.action for done in again.stages.values()} == {"reused"}


@pytest.mark.usefixtures("prefect")
def test_a_rival_that_fails_is_named_and_the_own_model_is_stored_all_the_same(
    tiny: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    rival = with_training(tiny, head="cosface")
    failing = rival.model_copy(update={"execution": ExecutionConfig(nodes="2")})
    with milestones_printed(), pytest.raises(GifError, match=r"CosFace.* failed: .*needs execution.rendezvous"):
        demo(tiny, failing)
    assert "CosFace: failed: " in capsys.readouterr().out
    (record,) = [run for run in list_runs(ArtifactStore(tiny.store)) if run.config["training"]["head"] == "gif"]
    assert (record.state, record.current) == ("failed", "reporting")
    assert [*record.stages] == [*SHARED, "training", "evaluation"]


@pytest.mark.usefixtures("prefect")
def test_a_run_that_fails_ends_its_rival_and_raises_its_own_error(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Run.run_stage

    def fail(run: Run, stage: StageName, config: RunConfig, **options: Any) -> StageRecord:
        if stage == "training":
            wait_until(lambda: list_runs(run.store)[0].current == stage, seconds=100, what="the rival's training")
            raise GifError("no room")
        return usual(run, stage, config, **options)

    monkeypatch.setattr(Run, "run_stage", fail)
    with pytest.raises(GifError, match=r"^no room$"):
        demo(tiny, with_training(tiny, head="cosface", epochs=5000))
    assert sorted(run.state for run in list_runs(ArtifactStore(tiny.store))) == ["failed", "interrupted"]


@pytest.mark.parametrize("sign", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_demo_that_is_ended_leaves_no_process_and_no_file(
    sign: signal.Signals, tmp_path: Path, tiny: RunConfig, prefect_api: str, running_process: Process
) -> None:
    (tmp_path / "tmp").mkdir()
    configs = [with_training(tiny, head=head, epochs=5000).model_dump(mode="json") for head in ("gif", "cosface")]
    family, store, log = tmp_path.name, ArtifactStore(tiny.store), tmp_path / "log"
    environment = {"PREFECT_API_URL": prefect_api, MARK: family, "TMPDIR": str(tmp_path / "tmp")}
    with running_process([sys.executable, "-c", DEMO, json.dumps(configs)], log, **environment) as process:
        wait_until(
            lambda: [run.current for run in list_runs(store)] == ["training", "training"],
            seconds=300,
            what="training",
            log=log,
        )
        process.send_signal(sign)
        process.wait(100)
        wait_until(lambda: not find_process_tree(family), seconds=100, what="the end of the rival", log=log)
    assert [run.state for run in list_runs(store)] == ["interrupted", "interrupted"]
    assert [path for path in (tmp_path / "tmp").iterdir() if path.is_file()] == []
