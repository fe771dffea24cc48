"""A stage of the real flow is tried again after a fault that passes, but not after bad input, and it can time out."""

from pathlib import Path

import pytest
from prefect.client.schemas.objects import TaskRun
from prefect.states import State

from flows.pipeline import gif
from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.readers import Reader
from schemas.ingestion import Source
from schemas.loading import load_config
from schemas.run import RunConfig
from tests.flows.recorded import stage_of, task_runs

pytestmark = pytest.mark.usefixtures("prefect")


def ingestion_of(state: State) -> TaskRun:
    """How the server has recorded the first stage."""
    return next(task for task in task_runs(state, "ingestion") if stage_of(task) == "ingestion")


def with_source(config: RunConfig, path: Path) -> RunConfig:
    """Faces in a folder; a pause of a moment before a stage is tried again."""
    source = {"kind": "folder", "path": str(path)}
    return load_config(config, [f"ingestion.sources=[{source}]", "execution.retry_seconds=0.1", "execution.retries=2"])


def test_a_fault_that_passes_is_tried_again(tiny: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    from gif_core.ingestion import stage

    faults = iter([ConnectionResetError("the store was away"), TimeoutError("and again")])
    whole = stage.ingest

    def stumble(*given: object, **named: object) -> object:
        for fault in faults:
            raise fault
        return whole(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(stage, "ingest", stumble)
    state = gif(load_config(tiny, ["execution.retry_seconds=0.1"]), only="ingestion", return_state=True)
    assert state.is_completed()
    assert ingestion_of(state).run_count == 3


def test_an_identity_that_the_flow_could_not_compute_is_computed_by_the_task_and_its_retries(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gif_core.planning import keys

    faults = iter([ConnectionResetError("in the flow"), ConnectionResetError("in the task's first try")])
    whole = keys.open_reader

    def stumble(source: Source) -> Reader:
        for fault in faults:
            raise fault
        return whole(source)

    monkeypatch.setattr(keys, "open_reader", stumble)
    state = gif(load_config(tiny, ["execution.retry_seconds=0.1"]), only="ingestion", return_state=True)
    assert state.is_completed()
    assert ingestion_of(state).run_count == 2


def test_a_reused_stage_is_tried_as_often_as_the_run_says(tiny: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks import reuse

    faults = iter([ConnectionResetError("the store was away"), TimeoutError("and again")])
    whole = reuse.move_tag

    def stumble(*given: object) -> None:
        for fault in faults:
            raise fault
        whole(*given)  # type: ignore[arg-type]

    gif(tiny, only="ingestion")
    monkeypatch.setattr(reuse, "move_tag", stumble)
    again = load_config(tiny, ["execution.retry_seconds=0.1", "execution.retries=1"])
    state = gif(again, only="ingestion", return_state=True)
    assert state.is_failed()
    assert ingestion_of(state).run_count == 2


def test_a_source_that_is_not_there_is_told_at_once(tiny: RunConfig, tmp_path: Path) -> None:
    state = gif(with_source(tiny, tmp_path / "nowhere"), only="ingestion", return_state=True)
    assert state.is_failed()
    assert "nowhere" in str(list_runs(ArtifactStore(tiny.store))[0].error)
    assert ingestion_of(state).run_count == 1


def test_a_source_with_no_image_that_can_be_read_is_told_at_once(tiny: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "faces" / "a").mkdir(parents=True)
    (tmp_path / "faces" / "a" / "1.jpg").write_bytes(b"no image")
    state = gif(with_source(tiny, tmp_path / "faces"), only="ingestion", return_state=True)
    assert state.is_failed()
    assert ingestion_of(state).run_count == 1


def test_a_stage_that_takes_too_long_is_stopped_and_the_record_says_so(tiny: RunConfig) -> None:
    many = "ingestion.sources=[{kind: synthetic, identities: 20000, smallest: 3, largest: 6}]"
    config = load_config(tiny, [many, "execution.timeouts.ingestion=1.5"])
    state = gif(config, only="ingestion", return_state=True)
    assert ingestion_of(state).state_name == "TimedOut"
    assert ingestion_of(state).run_count == 1
    record = list_runs(ArtifactStore(config.store))[0]
    assert record.state == "failed"
    assert "1.5 second" in str(record.error)
