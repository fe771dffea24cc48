"""What Prefect's UI shows of a stage while it runs."""

import socket
import threading
from collections.abc import Iterator

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterTaskRunId
from prefect.context import SyncClientContext, TaskRunContext
from prefect.settings import PREFECT_API_URL, temporary_settings
from rich.console import Console

from gif_core.runtime import Progress
from tasks import progress
from tasks.progress import label_of, track


def test_a_terminal_of_eighty_columns_has_room_for_the_bar_and_for_all_metrics(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note = "loss 2.113  tokens 91 84 62%  code 55%  z·h 0.71  unseen 93.1%  img/s 812"
    with progress._bar(Console(width=80, force_terminal=True, color_system=None)) as bar:
        bar.add_task("tokenization: alignment", total=20_000, completed=1234, note=note)
    shown = capsys.readouterr().out
    assert "1234/20000" in shown
    assert note in shown


def test_a_stage_that_ended_before_its_limit_has_a_full_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = []

    class Bar(progress._Bar):
        def stop(self) -> None:
            bars.append((self.tasks[0].completed, self.tasks[0].total))
            super().stop()

    monkeypatch.setattr(progress, "_Bar", Bar)
    list(track([Progress("separation", 1, 1000), Progress("separation", 2, 1000)]))
    assert bars[0] == (2, 2)


@pytest.mark.usefixtures("prefect")
def test_the_artifact_of_a_running_stage_has_how_far_it_is_and_its_newest_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "UI_SECONDS", 0.0)
    shown = []

    @task
    def stage() -> None:
        for step in track(Progress("stage", at, 4, f"tokens 9{at} 8{at}%") for at in (1, 2)):
            context = TaskRunContext.get()
            assert context is not None
            mine = ArtifactFilter(task_run_id=ArtifactFilterTaskRunId(any_=[context.task_run.id]))
            with get_client(sync_client=True) as client:
                shown.extend(
                    (step.done, found.data, found.description) for found in client.read_artifacts(artifact_filter=mine)
                )

    flow(name="progress")(lambda: stage())()
    assert shown == [
        (1, 25.0, "Progress of stage: `tokens 91 81%`"),
        (2, 50.0, "Progress of stage: `tokens 92 82%`"),
    ]


@pytest.mark.usefixtures("prefect")
def test_a_bar_names_the_stage_it_belongs_to() -> None:
    @task(name="evaluation")
    def stage() -> list[str]:
        return [label_of(activity) for activity in ("evaluation", "encoder", "model")]

    labels = flow(name="labels")(lambda: stage())()
    assert labels == ["evaluation", "evaluation: encoder", "evaluation: model"]
    assert label_of("encoder") == "encoder"


class DeadServer:
    """Takes connections and breaks every one of them off."""

    def __init__(self) -> None:
        self.listening, self.asked = socket.create_server(("127.0.0.1", 0)), 0
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}/api"
        self.thread = threading.Thread(target=self.break_off)
        self.thread.start()

    def break_off(self) -> None:
        while True:
            connection, _ = self.listening.accept()
            connection.close()
            if not self.url:
                return
            self.asked += 1

    def stop(self) -> None:
        address, self.url = self.listening.getsockname(), ""
        socket.create_connection(address).close()
        self.thread.join()
        self.listening.close()


@pytest.fixture
def dead_server() -> Iterator[DeadServer]:
    server = DeadServer()
    yield server
    server.stop()


@pytest.mark.usefixtures("prefect")
def test_a_server_that_does_not_answer_is_asked_once_and_the_work_goes_on(
    dead_server: DeadServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "UI_SECONDS", 0.0)

    @task
    def work() -> list[int]:
        with temporary_settings({PREFECT_API_URL: dead_server.url}):
            monkeypatch.setattr(SyncClientContext, "get", lambda: None)  # the run's client knows the real server
            return [step.done for step in track(Progress("counting", done, 2) for done in range(2))]

    @flow
    def counting() -> list[int]:
        return work()

    assert counting() == [0, 1]
    assert dead_server.asked == 2, "once for each step"
    assert "could not be shown progress" in caplog.text
