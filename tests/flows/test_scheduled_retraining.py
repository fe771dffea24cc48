"""A week in a minute: real S3, a real Prefect server and worker; the data change and the schedule fires by itself."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.retrain import retrain
from gif_core.artifacts import ArtifactStore, list_runs, read_history, read_tag
from gif_core.retraining import should_promote
from gif_core.synthetic import draw_jpeg
from schemas.retraining import Decision
from schemas.stages import STAGES

PROJECT = Path(__file__).parents[2]
IDENTITIES, SECONDS = 24, 20
RETRAIN = DeploymentFilter(name=DeploymentFilterName(any_=["retrain"]))
Running = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]
Cli = Callable[..., str]


@pytest.fixture
def client(prefect_api: str) -> Iterator[SyncPrefectClient]:
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def prefect_cli(prefect_api: str, client: SyncPrefectClient) -> Iterator[Cli]:
    """Runs `prefect …` on a server without deployments; at the end nothing is scheduled any more."""

    def run(*arguments: str) -> str:
        environment = {**os.environ, "PREFECT_API_URL": prefect_api, "PREFECT_CLI_PROMPT": "false", "COLUMNS": "200"}
        command = [sys.executable, "-m", "prefect", *arguments]
        done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    remove_deployments(client)
    yield run
    remove_deployments(client)


def remove_deployments(client: SyncPrefectClient) -> None:
    for deployment in client.read_deployments():
        client.delete_deployment(deployment.id)


@pytest.fixture
def worker(
    prefect_cli: Cli,
    prefect_api: str,
    s3_url: str,
    running_process: Running,
    wait: Callable[..., None],
    tmp_path: Path,
) -> Iterator[Path]:
    """A worker that knows the S3 server; its log."""
    prefect_cli("work-pool", "create", "gif", "--type", "process", "--overwrite")
    command, log = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "gif"], tmp_path / "worker.log"
    given = {"PREFECT_API_URL": prefect_api, "PREFECT_WORKER_QUERY_SECONDS": "2", "OMP_NUM_THREADS": "1"}
    with running_process(command, log, **given):
        wait(lambda: "started" in log.read_text(), seconds=60, what="the worker's start", log=log)
        yield log


def draw(root: Path, identities: range) -> None:
    for person in identities:
        (root / f"p{person:02d}").mkdir(parents=True)
        for sample in range(4):
            (root / f"p{person:02d}" / f"{sample}.jpg").write_bytes(draw_jpeg(0, person, sample))


def settings_of(tiny: dict[str, Any], faces: Path, store: str) -> dict[str, Any]:
    return {
        **tiny,
        "store": store,
        "ingestion": {"sources": [{"kind": "folder", "path": str(faces)}], "held_out": 0.3},
        "tokenization": {"length": 2},
        "evaluation": {"sets": [{"kind": "held_out"}], "pairs": 40, "systems": ["model"], "identification": None},
        "execution": {"workers": 1},
    }


def scheduled_runs(client: SyncPrefectClient) -> list[FlowRun]:
    """Those that the schedule has begun, and that have ended."""
    found = client.read_flow_runs(deployment_filter=RETRAIN)
    return [run for run in found if run.auto_scheduled and run.state_type and run.state_type.value == "COMPLETED"]


def told(client: SyncPrefectClient, words: str) -> bool:
    return any(run.state and words in str(run.state.message) for run in scheduled_runs(client))


@pytest.fixture
def settings(tmp_path: Path, s3_url: str, tiny_settings: dict[str, Any]) -> dict[str, Any]:
    """A run on a folder of faces, with its store on S3."""
    draw(tmp_path / "faces", range(IDENTITIES))
    return settings_of(tiny_settings, tmp_path / "faces", s3_url)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_schedule_notices_new_identities_and_decides_for_the_right_reason(
    worker: Path, prefect_cli: Cli, prefect: str, settings: dict[str, Any], wait: Callable[..., None]
) -> None:
    first = retrain(settings).decision  # type: ignore[arg-type]
    assert first is not None
    grow(settings)
    schedule(prefect_cli, settings)
    store = ArtifactStore(settings["store"])
    wait(lambda: len(read_history(store)) > 1, seconds=400, what="a decision", log=worker)
    check_challenge(store, read_history(store)[1], first.champion)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_from_the_deployed_pipeline_to_a_schedule_that_finds_nothing_new(
    worker: Path,
    prefect_cli: Cli,
    client: SyncPrefectClient,
    settings: dict[str, Any],
    run_gif: Cli,
    wait: Callable[..., None],
) -> None:
    store = ArtifactStore(settings["store"])
    prefect_cli("deploy", "--name", "full-pipeline")
    config = f"config={json.dumps(settings)}"
    assert "Completed" in prefect_cli("deployment", "run", "gif/full-pipeline", "--watch", "-p", config)
    first = list_runs(store)[0]
    run_gif("promote", first.run_id, "--store", settings["store"], "--because", "the first model")
    grow(settings)
    schedule(prefect_cli, settings)
    wait(lambda: len(read_history(store)) > 1, seconds=400, what="a decision", log=worker)
    decision = read_history(store)[1]
    check_challenge(store, decision, first.stages["training"].key)
    wait(lambda: told(client, "nothing new"), seconds=200, what="a run that finds nothing new", log=worker)
    assert told(client, decision.because)
    assert len(read_history(store)) == 2, "nothing new is not decided about again"


def grow(settings: dict[str, Any]) -> None:
    draw(Path(settings["ingestion"]["sources"][0]["path"]), range(IDENTITIES, IDENTITIES + 6))


def schedule(prefect_cli: Cli, settings: dict[str, Any]) -> None:
    """Deploy as `prefect.yaml` says, with a schedule of seconds beside that of a week."""
    given = {"config": settings, "policy": {"promotion": {"replicas": 200}}}
    prefect_cli("deploy", "--name", "retrain", "--interval", str(SECONDS), "--params", json.dumps(given))


def check_challenge(store: ArtifactStore, decision: Decision, before: str) -> None:
    """The challenger was trained on all identities and measured on the champion's sets, and the tag is right."""
    run = next(run for run in list_runs(store) if run.run_id == decision.run_id)
    assert run.state == "completed"
    assert list(run.stages) == list(STAGES)
    identities = store.open(store.ref("ingestion", str(decision.ingestion))).path("identities.parquet")
    assert pq.read_metadata(identities).num_rows == 21
    assert store.open(store.ref("embedding", run.stages["embedding"].key)).manifest.metrics["parts_computed"] == 1
    assert decision.codes is not None
    assert (decision.codes.action, decision.fine_tuned) == ("extend", True)
    trained = {
        name: store.open(store.ref("evaluation", key)).manifest.inputs["training"].key
        for name, key in decision.evaluations.items()
    }
    assert trained == {"champion": before, "challenger": decision.challenger}
    assert [row.set for row in decision.metrics] == ["held_out"]
    promoted, because = should_promote(decision.metrics)
    assert (decision.kind, decision.because) == ("promoted" if promoted else "kept", because)
    tag = read_tag(store, "training", "champion")
    assert tag is not None
    assert tag.ref.key == decision.champion == (decision.challenger if promoted else before)
