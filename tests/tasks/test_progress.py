"""What Prefect's UI shows of a stage while it runs."""

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterTaskRunId
from prefect.context import TaskRunContext

from tasks import progress
from tasks.progress import track


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
