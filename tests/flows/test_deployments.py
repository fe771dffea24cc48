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
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName, LogFilter, LogFilterTimestamp
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling

from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.runs import list_runs
from schemas.artifacts import RunRecord
from schemas.stages import STAGES

PROJECT = Path(__file__).parents[2]
Running = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]


def prefect(api: str, *arguments: str) -> str:
    environment = {**os.environ, "PREFECT_API_URL": api, "PREFECT_CLI_PROMPT": "false", "COLUMNS": "200"}
    command = [sys.executable, "-m", "prefect", *arguments]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def store(
    prefect_api: str,
    running_process: Running,
    wait: Callable[..., None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ArtifactStore]:
    """Everything is deployed and a worker takes runs; they write to this store."""
    folder = tmp_path_factory.mktemp("worker")
    prefect(prefect_api, "work-pool", "create", "gif", "--type", "process")
    prefect(prefect_api, "deploy", "--all")
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "gif"]
    log, address = folder / "worker.log", folder / "store"
    with running_process(command, log, PREFECT_API_URL=prefect_api, GIF_STORE=str(address)):
        wait(lambda: "started" in log.read_text(), seconds=60, what="the worker's start", log=log)
        yield ArtifactStore(str(address))


def test_a_deployed_pipeline_runs_to_its_end_and_then_tokenize_makes_the_codes_again(
    store: ArtifactStore, prefect_api: str, tiny_settings: dict[str, object]
) -> None:
    config = f"config={json.dumps(tiny_settings)}"
    printed = prefect(prefect_api, "deployment", "run", "gif/full-pipeline", "--watch", "-p", config)
    assert "Completed" in printed
    first = list_runs(store)[0]
    assert {stage: done.action for stage, done in first.stages.items()} == dict.fromkeys(STAGES, "computed")

    prefect(prefect_api, "deployment", "run", "gif/tokenize", "--watch", "-p", config)
    second = list_runs(store)[0]
    assert {stage: done.action for stage, done in second.stages.items()} == {"tokenization": "computed"}
    assert second.stages["tokenization"].key == first.stages["tokenization"].key


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="reads /proc")
def test_a_cancelled_training_leaves_no_process_and_a_checkpoint_from_which_the_next_run_goes_on(
    store: ArtifactStore, prefect_api: str, tiny_settings: dict[str, Any], wait: Callable[..., None]
) -> None:
    settings = tiny_settings | {
        "training": tiny_settings["training"] | {"epochs": 40, "verified_pairs": 0},
        "execution": {"device": "cpu", "processes": 2, "workers": 1, "checkpoint_steps": 10},
    }
    config = f"config={json.dumps(settings)}"
    printed = prefect(prefect_api, "deployment", "run", "gif/full-pipeline", "-p", config)
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

    prefect(prefect_api, "deployment", "run", "gif/full-pipeline", "--watch", "-p", config)
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


def test_a_wrong_parameter_is_refused_when_the_run_is_asked_for(store: ArtifactStore, prefect_api: str) -> None:
    with pytest.raises(AssertionError, match="lenght"):
        prefect(
            prefect_api,
            "deployment",
            "run",
            "gif/full-pipeline",
            "-p",
            'config={"tokenization": {"lenght": 4}}',
        )
