"""The deployments of `prefect.yaml` on a real server with a real worker."""

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
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName, LogFilter, LogFilterTimestamp
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling

from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.runs import list_runs
from schemas.artifacts import RunRecord
from schemas.stages import STAGES

Command = Callable[..., str]
Worker = Callable[[Path], AbstractContextManager[subprocess.Popen[bytes]]]


@pytest.fixture(scope="module")
def store(start_worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArtifactStore]:
    """Everything is deployed and a worker takes runs; they write to this store."""
    folder = tmp_path_factory.mktemp("worker")
    with start_worker(folder):
        yield ArtifactStore(str(folder / "store"))


def test_a_deployed_pipeline_runs_to_its_end_and_then_tokenize_makes_the_codes_again(
    store: ArtifactStore, prefect_command: Command, tiny_settings: dict[str, object]
) -> None:
    config = f"config={json.dumps(tiny_settings)}"
    printed = prefect_command("deployment", "run", "gif/full-pipeline", "--watch", "-p", config)
    assert "Completed" in printed
    first = list_runs(store)[0]
    assert {stage: done.action for stage, done in first.stages.items()} == dict.fromkeys(STAGES, "computed")

    prefect_command("deployment", "run", "gif/tokenize", "--watch", "-p", config)
    second = list_runs(store)[0]
    assert {stage: done.action for stage, done in second.stages.items()} == {"tokenization": "computed"}
    assert second.stages["tokenization"].key == first.stages["tokenization"].key


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="reads /proc")
def test_a_cancelled_training_leaves_no_process_and_a_checkpoint_from_which_the_next_run_goes_on(
    store: ArtifactStore,
    prefect_api: str,
    prefect_command: Command,
    tiny_settings: dict[str, Any],
    wait: Callable[..., None],
) -> None:
    settings = tiny_settings | {
        "training": tiny_settings["training"] | {"epochs": 40, "verified_pairs": 0},
        "execution": {"device": "cpu", "processes": 2, "workers": 1, "checkpoint_steps": 10},
    }
    config = f"config={json.dumps(settings)}"
    printed = prefect_command("deployment", "run", "gif/full-pipeline", "-p", config)
    run = UUID(re.search(r"UUID: (\S+)", printed).group(1))  # type: ignore[union-attr]
    folder = Path(store.storage.url.removeprefix("file://")) / "checkpoints"
    wait(lambda: bool(list(folder.rglob("state.json"))), seconds=180, what="a checkpoint")
    ranks = training_processes(store)
    assert len(ranks) == 3, "torchrun and two ranks"
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Cancelling())
        wait(lambda: client.read_flow_run(run).state_name == "Cancelled", seconds=90, what="the end of the run")
    wait(lambda: not training_processes(store), seconds=15, what="the end of its processes")
    reached = max(int(state.parent.name.split("-")[0]) for state in folder.rglob("state.json"))
    assert 10 <= reached < 200

    prefect_command("deployment", "run", "gif/full-pipeline", "--watch", "-p", config)
    latest = list_runs(store)[0]
    assert latest.state == "completed"
    model = store.open(store.ref("training", latest.stages["training"].key))
    steps = pq.read_table(model.path("metrics.parquet"))["step"].to_pylist()
    assert sorted(set(steps)) == list(range(1, max(steps) + 1)), "the steps before the cancellation are there too"
    assert f"training goes on after step {reached}" in logs_of(latest, prefect_api)
    assert not list(folder.rglob("*.*")), "nobody needs the checkpoints any more"


def training_processes(store: ArtifactStore) -> list[int]:
    """Processes that train for this store."""
    place, found = store.storage.url.removeprefix("file://"), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().decode(errors="replace")
            if "gif_core.training_worker" in words and place in words:
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
    assert schema["properties"]["only"]["description"] == "Run this stage alone, on what the store holds."


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
