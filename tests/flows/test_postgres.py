"""Prefect's server on a real Postgres, with the settings of `docker/compose.yaml`."""

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.settings import PREFECT_API_URL, temporary_settings

from gif_core.artifacts import ArtifactStore, list_runs
from schemas.stages import STAGES
from tests.conftest import PROJECT, free_port, patient_client, prefect_server, prefect_worker, run_module, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not shutil.which("initdb"), reason="needs Postgres (Debian: postgresql), with initdb on PATH"),
]
PASSWORD = secrets.token_hex(15)
COMPOSE = yaml.safe_load((PROJECT / "docker" / "compose.yaml").read_text())["services"]["server"]["environment"]
FLOWS, TASKS = 3, 300
Process = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]


@pytest.fixture(scope="module")
def postgres(running_process: Process) -> Iterator[int]:
    """The port of a Postgres with an empty database, run by somebody without rights."""
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        data, password, log = Path(name) / "data", Path(name) / "password", Path(name) / "postgres.log"
        password.write_text(PASSWORD)
        for path in (Path(name), password):
            shutil.chown(path, "nobody") if os.getuid() == 0 else None
        user = {"user": "nobody"} if os.getuid() == 0 else {}
        make = ["initdb", f"--pgdata={data}", "--username=prefect", "--auth=scram-sha-256", f"--pwfile={password}"]
        subprocess.run([*make, "--encoding=UTF8", "--locale=C"], check=True, capture_output=True, cwd=name, **user)
        port = free_port()
        command = ["postgres", "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", ""]
        with running_process(["setpriv", "--reuid=nobody", "--clear-groups", *command] if user else command, log):
            wait_until(lambda: answers(port), seconds=60, what="the answer of Postgres", log=log)
            yield port


def answers(port: int) -> bool:
    with suppress(OSError, asyncpg.PostgresError):
        return asyncio.run(make_database(port))
    return False


async def make_database(port: int) -> bool:
    client = await asyncpg.connect(host="127.0.0.1", port=port, user="prefect", password=PASSWORD, database="postgres")
    try:
        await client.execute("CREATE DATABASE prefect")
    finally:
        await client.close()
    return True


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prefect")


@pytest.fixture(scope="module")
def api(postgres: int, home: Path) -> Iterator[str]:
    """A Prefect server on it, with everything deployed."""
    here = {
        "PREFECT_SERVER_DATABASE_HOST": "127.0.0.1",
        "PREFECT_SERVER_DATABASE_PORT": str(postgres),
        "PREFECT_SERVER_DATABASE_PASSWORD": PASSWORD,
    }
    assert here.keys() < COMPOSE.keys()
    port = free_port()
    with prefect_server(home, port, **COMPOSE | here):
        address = f"http://127.0.0.1:{port}/api"
        run_module("flows.cli", "deploy", PREFECT_API_URL=address)
        yield address
    assert list(home.glob("*.db")) == [], "nothing is in SQLite"


def ask_for_a_run(api: str, settings: dict[str, Any], *options: str) -> None:
    given = ("deployment", "run", "gif/full-pipeline", "-p", f"config={json.dumps(settings)}")
    run_module("prefect", *given, *options, PREFECT_API_URL=api)


def test_a_scheduled_run_computes_and_the_next_one_finds_everything(
    api: str, tmp_path: Path, tiny_settings: dict[str, Any]
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))

    def ended(number: int) -> bool:
        return [run.state for run in list_runs(store)] == ["completed"] * number

    with prefect_worker(api, tmp_path):
        ask_for_a_run(api, tiny_settings, "--start-in", "5 seconds")
        wait_until(lambda: ended(1), seconds=300, what="the scheduled run", log=tmp_path / "worker.log")
        ask_for_a_run(api, tiny_settings)
        wait_until(lambda: ended(2), seconds=300, what="the cached run", log=tmp_path / "worker.log")
    again, first = list_runs(store)
    assert {stage: done.action for stage, done in first.stages.items()} == dict.fromkeys(STAGES, "computed")
    assert {stage: done.action for stage, done in again.stages.items()} == dict.fromkeys(STAGES, "reused")


def test_the_weekly_run_of_retrain_is_scheduled(api: str) -> None:
    def scheduled() -> list[str]:
        with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
            runs = client.read_flow_runs(flow_filter=FlowFilter(name=FlowFilterName(any_=["retrain"])))
        return [f"{run.expected_start_time:%a %H:%M}" for run in runs if run.state_name == "Scheduled"]

    wait_until(lambda: bool(scheduled()), seconds=120, what="a scheduled run")
    assert set(scheduled()) == {"Mon 03:00"}


def test_three_flows_of_300_tasks_at_once_complete_and_the_server_reports_no_fault(api: str, home: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("many_tasks.py")), str(TASKS)]
    environment = {**os.environ, "PREFECT_API_URL": api, "PREFECT_LOGGING_LEVEL": "WARNING"}
    started = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(FLOWS)]
    printed = [process.communicate(timeout=500)[1] for process in started]
    assert [process.returncode for process in started] == [0] * FLOWS, printed
    given = {"flows": {"name": {"any_": ["many tasks"]}}, "task_runs": {"state": {"name": {"any_": ["Completed"]}}}}

    def recorded() -> int:
        return int(patient_client().post(f"{api}/task_runs/count", json=given, timeout=60).json())

    wait_until(lambda: recorded() == FLOWS * TASKS, seconds=300, what=f"the records of all tasks, not {recorded()},")
    log = (home / "server.log").read_text().lower()
    assert [word for word in ("locked", "deadlock", "traceback", "timeout") if word in log] == []
