"""`gif sweep --work-pool`: its runs as flow runs of the deployed pipeline, on a real Prefect server."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled, Failed

from flows.submission import find_deployment, has_worker, parameters_of, submit_run, wait_for_runs
from gif_core.artifacts import ArtifactStore, list_runs
from schemas.errors import GifError
from schemas.loading import load_config
from schemas.run import RunConfig
from schemas.stages import STAGES

Gif = Callable[..., str]
Worker = Callable[..., AbstractContextManager[object]]


@pytest.fixture
def client(deployed: str) -> Iterator[SyncPrefectClient]:
    with temporary_settings({PREFECT_API_URL: deployed}), get_client(sync_client=True) as client:
        yield client


def test_the_worker_is_given_every_setting_and_a_store_that_means_the_same_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config("demo", ["store=here", "training.head=cosface", "seed=3"])
    given = parameters_of(config)
    monkeypatch.setenv("GIF_STORE", "elsewhere")
    again = load_config(RunConfig.model_validate(given))
    assert again.store == str(tmp_path / "here")
    assert again.seed == 3
    assert [again.settings(stage) for stage in STAGES] == [config.settings(stage) for stage in STAGES]
    assert parameters_of(config.model_copy(update={"store": "s3://gif/prefix"}))["store"] == "s3://gif/prefix"


def test_a_run_is_submitted_once_and_again_after_it_failed(client: SyncPrefectClient, tiny: RunConfig) -> None:
    deployment = find_deployment("gif")
    first = submit_run(deployment, tiny, "0f" * 32, "sweep: gif, seed 0")
    assert submit_run(deployment, tiny, "0f" * 32, "sweep: gif, seed 0") == first
    other = submit_run(deployment, tiny, "1f" * 32, "sweep: cosface, seed 0")
    assert other != first
    run = client.read_flow_run(first)
    assert run.name == "sweep: gif, seed 0"
    assert load_config(RunConfig.model_validate(run.parameters["config"])).store == tiny.store
    client.set_flow_run_state(first, Failed(message="no such folder"), force=True)
    client.set_flow_run_state(other, Cancelled(), force=True)
    ended = dict(wait_for_runs([first, other]))
    assert ended == {first: "Failed: no such folder", other: "Cancelled"}
    again = submit_run(deployment, tiny, "0f" * 32, "sweep: gif, seed 0")
    assert again != first
    client.delete_flow_run(again)
    assert dict(wait_for_runs([again])) == {again: "it was deleted"}


def test_a_pool_that_is_not_there_and_one_without_the_deployment_are_said(client: SyncPrefectClient) -> None:
    from flows.deployment import ensure_pool

    with pytest.raises(GifError, match=r"there is no work pool 'nowhere' on http://127\.0\.0\.1"):
        find_deployment("nowhere")
    ensure_pool("empty", "process")
    with pytest.raises(GifError, match="no deployment gif/full-pipeline is on the work pool 'empty'"):
        find_deployment("empty")
    assert not has_worker("empty")


def test_without_a_server_the_command_says_what_to_set(
    run_gif: Gif, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    vary = ("--vary", "training.head=gif,cosface", "--work-pool", "gif", "--set", f"store={tmp_path / 'store'}")
    assert "set PREFECT_API_URL" in run_gif("sweep", "--preset", "demo", *vary, code=2)


@pytest.mark.slow
def test_a_sweep_on_a_pool_is_run_by_its_worker_and_goes_on_where_it_ended(
    start_worker: Worker,
    deployed: str,
    run_gif: Gif,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tiny_settings: dict[str, Any],
) -> None:
    store = tmp_path / "swept"
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**tiny_settings, "store": str(store)}))
    monkeypatch.setenv("PREFECT_API_URL", deployed)
    command = ("sweep", "-c", str(tmp_path / "run.yaml"), "--vary", "training.head=gif,cosface", "--work-pool", "gif")
    with start_worker(tmp_path), temporary_settings({PREFECT_API_URL: deployed}):
        shown = run_gif(*command)
        assert "held_out: accuracy" in shown
        assert "cosface" in shown
        runs = list_runs(ArtifactStore(str(store)))
        assert [run.state for run in runs] == ["completed", "completed"]
        assert runs[0].stages["tokenization"].key == runs[1].stages["tokenization"].key
        assert run_gif(*command) == shown
        assert len(list_runs(ArtifactStore(str(store)))) == 2, "everything is stored, so nothing was submitted"
