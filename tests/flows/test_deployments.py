"""The deployments of `prefect.yaml` on a real Prefect server with a real worker and a real S3 server."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName, LogFilter, LogFilterTimestamp
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, State

from gif_core.artifacts import ArtifactStore, list_runs
from schemas.artifacts import RunRecord
from schemas.stages import STAGES

Command = Callable[..., str]
Worker = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]
Start = Callable[[str, dict[str, Any]], UUID]
Wait = Callable[..., None]


@pytest.fixture(scope="module")
def store(start_worker: Worker, s3_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArtifactStore]:
    """Everything is deployed and a worker takes runs; they write to this store."""
    folder = tmp_path_factory.mktemp("worker")
    address = f"s3://gif/{folder.name}-{os.urandom(4).hex()}"
    with start_worker(folder, address), pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIF_CACHE", str(folder / "cache"))
        yield ArtifactStore(address)


@pytest.fixture
def start(prefect_command: Command) -> Start:
    """Asks for a run of a deployment, as identities do."""

    def run(name: str, settings: dict[str, Any]) -> UUID:
        printed = prefect_command("deployment", "run", name, "-p", f"config={json.dumps(settings)}")
        return UUID(re.search(r"UUID: (\S+)", printed).group(1))  # type: ignore[union-attr]

    return run


@pytest.fixture
def run_to_its_end(start: Start, prefect_api: str, wait: Wait) -> Callable[..., None]:
    """Waits for a good end of the run too."""

    def run(name: str, settings: dict[str, Any]) -> None:
        number = start(name, settings)
        with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
            wait(lambda: state_of(client, number).is_final(), seconds=600, what=f"the end of {name}")
            state = state_of(client, number)
        assert state.is_completed(), state.message

    return run


def state_of(client: SyncPrefectClient, run: UUID) -> State:
    state = client.read_flow_run(run).state
    assert state is not None
    return state


def test_a_deployed_pipeline_runs_to_its_end_and_then_tokenize_makes_the_codes_again(
    store: ArtifactStore, run_to_its_end: Callable[..., None], tiny_settings: dict[str, Any]
) -> None:
    run_to_its_end("gif/full-pipeline", tiny_settings)
    first = list_runs(store)[0]
    assert {stage: done.action for stage, done in first.stages.items()} == dict.fromkeys(STAGES, "computed")
    assert len(list(store.storage.find("prefect"))) > len(STAGES), "the results of the flow and of its tasks"

    run_to_its_end("gif/tokenize", tiny_settings)
    second = list_runs(store)[0]
    assert {stage: done.action for stage, done in second.stages.items()} == {"tokenization": "computed"}
    assert second.stages["tokenization"].key == first.stages["tokenization"].key


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="reads /proc")
def test_a_cancelled_training_leaves_no_process_and_a_checkpoint_from_which_the_next_run_goes_on(
    store: ArtifactStore,
    prefect_api: str,
    start: Start,
    run_to_its_end: Callable[..., None],
    tiny_settings: dict[str, Any],
    wait: Wait,
) -> None:
    settings = tiny_settings | {
        "training": tiny_settings["training"] | {"epochs": 40, "val_pairs": 0},
        "execution": {"device": "cpu", "processes": 2, "workers": 1, "checkpoint_steps": 10},
    }
    run = start("gif/full-pipeline", settings)
    wait(lambda: bool(steps_reached(store)), seconds=180, what="a checkpoint")
    ranks = training_processes(store)
    assert len(ranks) == 3, "torchrun and two ranks"
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Cancelling())
        wait(lambda: client.read_flow_run(run).state_name == "Cancelled", seconds=90, what="the end of the run")
    wait(lambda: not training_processes(store), seconds=15, what="the end of its processes")
    reached = max(steps_reached(store))
    assert 10 <= reached < 200

    run_to_its_end("gif/full-pipeline", settings)
    latest = list_runs(store)[0]
    assert latest.state == "completed"
    model = store.open(store.ref("training", latest.stages["training"].key))
    steps = pq.read_table(model.path("metrics.parquet"))["step"].to_pylist()
    assert sorted(set(steps)) == list(range(1, max(steps) + 1)), "the steps before the cancellation are there too"
    assert f"training goes on after step {reached}" in logs_of(latest, prefect_api)
    assert not list(store.storage.find("checkpoints")), "nobody needs the checkpoints any more"


def steps_reached(store: ArtifactStore) -> list[int]:
    """After how many steps there are checkpoints."""
    paths = [file.path.split("/") for file in store.storage.find("checkpoints")]
    return [int(path[-2].split("-")[0]) for path in paths if path[-1] == "state.json"]


def training_processes(store: ArtifactStore) -> list[int]:
    """Processes that train for this store."""
    place, found = f"GIF_STORE={store.storage.url}\0".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            trains = b"gif_core.training.worker" in (process / "cmdline").read_bytes()
            if trains and place in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def logs_of(record: RunRecord, prefect_api: str) -> str:
    """All lines that Prefect's server was sent since the run began."""
    after = LogFilter(timestamp=LogFilterTimestamp(after_=record.started_at))
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        return "\n".join(log.message for log in client.read_logs(after))


def test_the_weekly_run_of_retrain_is_among_the_scheduled_runs(
    store: ArtifactStore, prefect_api: str, wait: Callable[..., None]
) -> None:
    deployment = DeploymentFilter(name=DeploymentFilterName(any_=["retrain"]))

    def scheduled() -> list[str]:
        with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
            runs = client.read_flow_runs(deployment_filter=deployment)
        return [f"{run.expected_start_time:%a %H:%M}" for run in runs if run.state_name == "Scheduled"]

    wait(lambda: bool(scheduled()), seconds=120, what="a scheduled run")
    assert set(scheduled()) == {"Mon 03:00"}


def test_the_ui_gets_a_form_with_every_setting_and_what_it_means(deployed: str) -> None:
    with temporary_settings({PREFECT_API_URL: deployed}), get_client(sync_client=True) as client:
        schema = client.read_deployment_by_name("gif/full-pipeline").parameter_openapi_schema
    config = schema["properties"]["config"]
    settings, text = config["anyOf"]
    assert text == {"type": "string"}
    run = schema["definitions"][settings["$ref"].rsplit("/", 1)[1]]
    assert set(STAGES) < set(run["properties"])
    assert run["properties"]["store"]["description"].startswith("Folder or URL")
    training = schema["definitions"]["TrainingConfig"]["properties"]
    assert training["epochs"]["type"] == "integer"
    assert "iresnet100" in training["backbone"]["enum"], "a list to choose from"
    assert training["gamma"]["description"]
    assert schema["properties"]["only"]["description"] == "Run this stage only, on stored artifacts."


def test_what_was_changed_by_hand_stays_when_it_is_deployed_again_and_reset_sets_it_back(
    deployed: str,
) -> None:
    with temporary_settings({PREFECT_API_URL: deployed}), get_client(sync_client=True) as client:
        found = client.read_deployment_by_name("retrain/retrain")
        client.update_deployment(found.id, DeploymentUpdate(parameters={"config": {"preset": "ms1mv2"}}))
        client.update_deployment_schedule(found.id, found.schedules[0].id, active=False)
        for again, preset, active in (([], "ms1mv2", False), (["--reset"], "demo", True)):
            deploy(deployed, *again)
            now = client.read_deployment_by_name("retrain/retrain")
            assert (now.parameters["config"], now.schedules[0].active) == ({"preset": preset}, active)


def deploy(api: str, *options: str) -> None:
    command = [sys.executable, "-m", "flows.cli", "deploy", *options]
    subprocess.run(command, env={**os.environ, "PREFECT_API_URL": api}, check=True, capture_output=True)


def test_a_wrong_parameter_is_refused_when_the_run_is_asked_for(store: ArtifactStore, prefect_command: Command) -> None:
    with pytest.raises(AssertionError, match="lenght"):
        prefect_command(
            "deployment",
            "run",
            "gif/full-pipeline",
            "-p",
            'config={"tokenization": {"lenght": 4}}',
        )
