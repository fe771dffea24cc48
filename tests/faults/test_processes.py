"""kill -9 of a run's process, the worker, the server, torchrun's agent and a rank, each in the middle of training."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings

from gif_core.artifacts import ArtifactStore, check_artifacts, list_runs
from schemas.artifacts import RunRecord
from schemas.stages import STAGES

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")]
PROJECT = Path(__file__).parents[2]
BEFORE = set(STAGES[: STAGES.index("training")])
Command = Callable[..., str]
Wait = Callable[..., None]
Worker = Callable[[Path], AbstractContextManager[subprocess.Popen[bytes]]]
Server = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]


@pytest.fixture(scope="module")
def long_training(tiny_settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with a training that lasts long enough to be disturbed."""
    return tiny_settings | {
        "training": tiny_settings["training"] | {"epochs": 25, "val_pairs": 0},
        "execution": {"device": "cpu", "workers": 1, "checkpoint_steps": 5},
    }


def with_seed(settings: dict[str, Any], seed: int, **execution: object) -> dict[str, Any]:
    """The same with code vectors, codes and a training of its own."""
    return settings | {"seed": seed, "execution": settings["execution"] | execution}


def find_processes(*marks: str) -> set[int]:
    """Living processes in whose command line or environment all these marks are."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes() + b"\0" + (process / "environ").read_bytes()
            if all(mark.encode() in words for mark in marks):
                found.add(int(process.name))
    return found - {os.getpid()}


def kill(processes: set[int]) -> None:
    assert processes
    for process in processes:
        os.kill(process, signal.SIGKILL)


def checkpoints(folder: Path) -> set[Path]:
    return set((folder / "store" / "checkpoints").rglob("state.json"))


def start_run(prefect_command: Command, settings: dict[str, Any], *options: str) -> UUID:
    config = f"config={json.dumps(settings)}"
    printed = prefect_command("deployment", "run", "gif/full-pipeline", "-p", config, *options)
    return UUID(re.search(r"UUID: (\S+)", printed).group(1))  # type: ignore[union-attr]


def start_and_wait_for_a_checkpoint(
    prefect_command: Command, settings: dict[str, Any], folder: Path, wait: Wait
) -> UUID:
    """The run's id, once its training has something to lose."""
    run = start_run(prefect_command, settings)
    wait(lambda: bool(checkpoints(folder)), seconds=180, what="a checkpoint", log=folder / "worker.log")
    return run


def read_run(api: str, run: UUID) -> FlowRun:
    with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
        return client.read_flow_run(run)


def assert_nothing_is_lost(folder: Path) -> None:
    store = ArtifactStore(str(folder / "store"))
    assert {ref.stage for ref in store.refs()} >= BEFORE
    assert [check for check in check_artifacts(store, store.refs()) if check.fault] == []


def assert_it_went_on(folder: Path) -> RunRecord:
    """The newest run is complete, reused what was published, and its training has every step."""
    store = ArtifactStore(str(folder / "store"))
    record = list_runs(store)[0]
    assert record.state == "completed"
    assert {stage for stage, done in record.stages.items() if done.action == "reused"} == BEFORE
    model = store.open(store.ref("training", record.stages["training"].key))
    steps = pq.read_table(model.path("metrics.parquet"))["step"].to_pylist()
    assert sorted(set(steps)) == list(range(1, max(steps) + 1)), "those before the kill are there too"
    return record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the tests of this file share, so that the faces are drawn once."""
    return tmp_path_factory.mktemp("faults")


def test_a_killed_run_is_crashed_at_once_and_the_next_one_goes_on(
    folder: Path,
    start_worker: Worker,
    prefect_command: Command,
    deployed: str,
    long_training: dict[str, Any],
    wait: Wait,
) -> None:
    settings = with_seed(long_training, 1)
    with start_worker(folder):
        run = start_and_wait_for_a_checkpoint(prefect_command, settings, folder, wait)
        kill(find_processes(f"PREFECT__FLOW_RUN_ID={run}", "prefect.engine"))
        wait(lambda: read_run(deployed, run).state_name == "Crashed", seconds=60, what="its end")
        assert "-9" in (read_run(deployed, run).state.message or ""), "how its process ended"  # type: ignore[union-attr]
        wait(lambda: not find_processes(f"PREFECT__FLOW_RUN_ID={run}"), seconds=30, what="the end of its processes")
        assert_nothing_is_lost(folder)
        start_run(prefect_command, settings, "--watch")
    assert_it_went_on(folder)


def test_a_run_that_dies_with_its_worker_is_marked_crashed_by_the_watch_and_the_next_worker_goes_on(
    folder: Path,
    start_worker: Worker,
    prefect_command: Command,
    deployed: str,
    long_training: dict[str, Any],
    wait: Wait,
) -> None:
    settings = with_seed(long_training, 2)
    with start_worker(folder) as worker:
        run = start_and_wait_for_a_checkpoint(prefect_command, settings, folder, wait)
        worker.kill()
        kill(find_processes(f"PREFECT__FLOW_RUN_ID={run}"))
    assert read_run(deployed, run).state_name == "Running", "nobody was left to say that it is dead"
    wait(lambda: read_run(deployed, run).state_name == "Crashed", seconds=200, what="the watch")
    assert "has not been heard of" in (read_run(deployed, run).state.message or "")  # type: ignore[union-attr]
    assert_nothing_is_lost(folder)
    with start_worker(folder):
        start_run(prefect_command, settings, "--watch")
    assert_it_went_on(folder)


def test_a_run_ends_soon_after_its_killed_worker_and_says_so(
    tmp_path: Path,
    start_worker: Worker,
    prefect_command: Command,
    deployed: str,
    long_training: dict[str, Any],
    wait: Wait,
) -> None:
    with start_worker(tmp_path) as worker:
        run = start_and_wait_for_a_checkpoint(prefect_command, long_training, tmp_path, wait)
        worker.kill()
        worker.wait()
        wait(lambda: read_run(deployed, run).state_name == "Crashed", seconds=60, what="its end")
        wait(lambda: not find_processes(f"PREFECT__FLOW_RUN_ID={run}"), seconds=30, what="the end of its processes")
    assert "aborted" in (read_run(deployed, run).state.message or "")  # type: ignore[union-attr]
    assert_nothing_is_lost(tmp_path)
    assert checkpoints(tmp_path), "from which the next run goes on"
    assert list_runs(ArtifactStore(str(tmp_path / "store")))[0].state == "interrupted"


@pytest.fixture
def start_gif_run(folder: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `gif run` in a process of its own, which tells what it says."""
    started: list[subprocess.Popen[str]] = []

    def start(api: str, settings: dict[str, Any]) -> subprocess.Popen[str]:
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings | {"store": str(folder / "store")}))
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "run", "--config", str(tmp_path / "run.yaml")],
            cwd=PROJECT,
            env={**os.environ, "PREFECT_API_URL": api},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_killed_rank_is_started_again_and_a_killed_agent_ends_its_ranks_and_the_next_run_goes_on(
    folder: Path,
    prefect_api: str,
    start_gif_run: Callable[..., subprocess.Popen[str]],
    long_training: dict[str, Any],
    wait: Wait,
) -> None:
    settings = with_seed(long_training, 3, processes=2)
    process = start_gif_run(prefect_api, settings)
    ranks = ("gif_core.training.worker", f"GIF_STARTED_BY={process.pid}\0", "LOCAL_RANK=")
    wait(lambda: bool(checkpoints(folder)), seconds=180, what="a checkpoint")
    first = find_processes(*ranks)
    assert len(first) == 2
    kill({min(first)})
    wait(lambda: len(find_processes(*ranks) - first) == 2, seconds=180, what="two new ranks")
    reached = checkpoints(folder)
    wait(lambda: bool(checkpoints(folder) - reached), seconds=180, what="another checkpoint")
    assert process.poll() is None, "the run has not noticed"

    second = find_processes(*ranks)
    agents = find_processes("torch.distributed.run", f"GIF_STARTED_BY={process.pid}\0") - second
    kill(agents)
    said, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "failed under torchrun" in said
    wait(lambda: not find_processes(f"GIF_STARTED_BY={process.pid}\0"), seconds=20, what="the end of the ranks")
    assert_nothing_is_lost(folder)
    assert list_runs(ArtifactStore(str(folder / "store")))[0].state == "failed"

    last = start_gif_run(prefect_api, settings)
    said, _ = last.communicate(timeout=300)
    assert last.returncode == 0, said
    assert_it_went_on(folder)


def test_a_killed_server_costs_nothing_that_was_published_and_the_next_run_completes(
    folder: Path,
    tmp_path: Path,
    start_server: Server,
    start_gif_run: Callable[..., subprocess.Popen[str]],
    long_training: dict[str, Any],
    port: int,
    wait: Wait,
) -> None:
    api, settings = f"http://127.0.0.1:{port}/api", with_seed(long_training, 4)
    with start_server(tmp_path, port) as killed:
        process = start_gif_run(api, settings)
        wait(lambda: bool(checkpoints(folder)), seconds=180, what="a checkpoint")
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    said, _ = process.communicate(timeout=300)
    assert_nothing_is_lost(folder)
    with start_server(tmp_path, port):
        last = start_gif_run(api, settings)
        told, _ = last.communicate(timeout=300)
    assert last.returncode == 0, said + told
    assert list_runs(ArtifactStore(str(folder / "store")))[0].state == "completed"
