"""What Prefect's UI shows of a stage while it runs."""

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterTaskRunId
from prefect.context import TaskRunContext
from rich.console import Console

from tasks import progress
from tasks.progress import track


def test_a_terminal_of_eighty_columns_has_room_for_the_bar_and_for_all_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note = "loss 2.113  tokens 91 84 62%  code 55%  z·h 0.71  unseen 93.1%  img/s 812"
    with progress._bar(Console(width=80, force_terminal=True, color_system=None)) as bar:
        bar.add_task("training", total=20_000, completed=1234, note=note)
    shown = capsys.readouterr().out
    assert "1234/20000" in shown
    assert note in shown


@pytest.mark.usefixtures("prefect")
def test_the_artifact_of_a_running_stage_has_how_far_it_is_and_its_newest_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "UI_SECONDS", 0.0)
    shown = []

    @task
    def stage() -> None:
        for number in track([1, 2], "stage", lambda at: (at, 4), lambda at: f"tokens 9{at} 8{at}%"):
            context = TaskRunContext.get()
            assert context is not None
            mine = ArtifactFilter(task_run_id=ArtifactFilterTaskRunId(any_=[context.task_run.id]))
            with get_client(sync_client=True) as client:
                shown.extend(
                    (number, found.data, found.description) for found in client.read_artifacts(artifact_filter=mine)
                )

    flow(name="progress")(lambda: stage())()
    assert shown == [
        (1, 25.0, "Progress of stage: `tokens 91 81%`"),
        (2, 50.0, "Progress of stage: `tokens 92 82%`"),
    ]
