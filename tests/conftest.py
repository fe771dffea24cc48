"""Real parts for the tests: an S3 server and a Prefect server, each started once, when first asked for; shards."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from gif_core.ingestion import SCHEMA
from schemas.loading import load_config
from schemas.run import RunConfig

PROJECT = Path(__file__).parents[1]
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}

TINY = {
    "preset": "demo",
    "ingestion": {
        "sources": [{"kind": "synthetic", "identities": 30, "smallest": 3, "largest": 6}],
        "held_out": 0.3,
    },
    "separation": {"epochs": 5},
    "training": {"epochs": 1, "batch_size": 16, "warmup_steps": 0},
    "evaluation": {"pairs": 40, "sets": [{"kind": "held_out"}], "identification": {"images": 50}},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults", type=int, help="how many faults a slow test of kills or flipped bits makes")


@pytest.fixture
def many(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """The number of faults that `--faults` asks for, else the usual one."""
    return lambda usual: request.config.getoption("--faults") or usual


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def restore_signals() -> None:
    """A child of a background job inherits ignored interrupts and would not end when told to."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)


@contextmanager
def running(
    command: list[str], log: Path, folder: Path = PROJECT, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process group of its own, which is always stopped."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **QUIET, **environment},
            cwd=folder,
            start_new_session=True,
            preexec_fn=restore_signals,
        )
        try:
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            continue


def wait_until(ready: Callable[[], bool], *, seconds: float, what: str, log: Path | None = None) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if ready():
            return
        time.sleep(0.1)
    tail = log.read_text(errors="replace")[-2000:] if log else ""
    pytest.fail(f"{what} did not happen within {seconds} s\n{tail}")


@cache
def patient_client() -> httpx.Client:
    """One for all tests: making one takes 20 ms, and a busy machine's server may take seconds to answer."""
    return httpx.Client(timeout=20, trust_env=False)


def answers(url: str) -> bool:
    try:
        return patient_client().get(url).status_code < 500
    except httpx.HTTPError:
        return False


Server = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]


class ServerEndedError(Exception):
    """A server ended before it answered: others may have taken its port meanwhile."""


@contextmanager
def prefect_server(home: Path, port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real Prefect server with a database of its own, once it is healthy."""
    log = home / "server.log"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with running(command, log, PREFECT_HOME=str(home), **environment) as process:
        url = f"http://127.0.0.1:{port}/api/health"
        wait_until(
            lambda: process.poll() is not None or answers(url), seconds=180, what="the Prefect server's answer", log=log
        )
        if process.poll() is not None:
            raise ServerEndedError(log.read_text(errors="replace")[-2000:])
        yield process


@contextmanager
def prefect_server_somewhere(home: Path, **environment: str) -> Iterator[str]:
    """The API of such a server on a free port; on another, up to twice, when somebody was faster there."""
    with ExitStack() as started:
        for tries_left in (2, 1, 0):
            port = free_port()
            try:
                started.enter_context(prefect_server(home, port, **environment))
                break
            except ServerEndedError:
                if not tries_left:
                    raise
        yield f"http://127.0.0.1:{port}/api"


@pytest.fixture(scope="session")
def start_server() -> Server:
    """Starts a Prefect server of a test's own; it is always stopped."""
    return prefect_server


@pytest.fixture
def port() -> int:
    """A port that nobody listens on."""
    return free_port()


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the Prefect server keeps its database and its log."""
    return tmp_path_factory.mktemp("prefect")


@pytest.fixture(scope="session")
def prefect_api(prefect_home: Path) -> Iterator[str]:
    """The API of a real Prefect server that all tests share, with the settings of `gif up`."""
    from flows.cli.environment import SERVER

    with prefect_server_somewhere(prefect_home, **SERVER) as api:
        yield api


@pytest.fixture
def prefect(prefect_api: str) -> Iterator[str]:
    """Flows of this process report to the real server."""
    from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_LEVEL, temporary_settings

    with temporary_settings({PREFECT_API_URL: prefect_api, PREFECT_LOGGING_LEVEL: "WARNING"}):
        yield prefect_api


Command = Callable[..., str]


@pytest.fixture(scope="session")
def prefect_command(prefect_api: str) -> Command:
    """Runs `prefect …` on the real server and gives what it prints."""

    def run(*arguments: str) -> str:
        return run_module("prefect", *arguments, PREFECT_API_URL=prefect_api)

    return run


@pytest.fixture(scope="session")
def deployed(prefect_api: str) -> str:
    """The real server with all that `gif deploy` puts on it."""
    run_module("flows.cli", "deploy", PREFECT_API_URL=prefect_api)
    return prefect_api


def run_module(module: str, *arguments: str, **environment: str) -> str:
    command, settings = [sys.executable, "-m", module, *arguments], {**QUIET, "COLUMNS": "200", **environment}
    done = subprocess.run(
        command, cwd=PROJECT, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


Worker = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]


@pytest.fixture(scope="session")
def start_worker(deployed: str) -> Worker:
    """Starts a worker that takes runs of the deployments; they keep their artifacts in `store`, a folder beside it."""
    return partial(prefect_worker, deployed)


@contextmanager
def prefect_worker(api: str, folder: Path, store: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of the pool `gif` of this server."""
    command, log = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "gif"], folder / "worker.log"
    told = {"PREFECT_API_URL": api, "PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_LOGGING_LEVEL": "INFO"}
    told |= {"GIF_STORE": store or str(folder / "store"), "GIF_CACHE": str(folder / "cache")}
    with running(command, log, **told) as process:
        wait_until(lambda: "started" in log.read_text(), seconds=60, what="the worker's start", log=log)
        yield process


CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key-of-the-tests-7Q2X", "AWS_SECRET_ACCESS_KEY": "never-to-be-seen-5f1c"}


def ports_of_weed() -> dict[str, int]:
    from flows.cli.seaweed import PORTS, free_ports

    return dict(zip(PORTS, free_ports(len(PORTS)), strict=True))


def port_option(name: str, port: int) -> str:
    role, dot, kind = name.partition(".")
    return f"-{role}.port{dot}{kind}={port}"


def weed_command(data: Path, ports: dict[str, int], address: str = "127.0.0.1") -> list[str]:
    weed = Path(sys.executable).with_name("weed")
    command = [str(weed), "mini", f"-dir={data}", f"-ip={address}", f"-ip.bind={address}", "-bucket=gif"]
    command += ["-admin.ui=false", "-webdav=false", "-master.telemetry=false"]
    return [*command, "-s3.port.iceberg=0", "-s3.port.lance=0", *(port_option(*port) for port in ports.items())]


@contextmanager
def weed_server(data: Path, ports: dict[str, int]) -> Iterator[subprocess.Popen[bytes]]:
    """A real S3 server (SeaweedFS) with one bucket, `gif`, on what the folder holds already if anything."""
    with running(weed_command(data, ports), data / "weed.log", **CREDENTIALS) as process:
        yield process


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The end point of a real S3 server that all tests share."""
    data, ports = tmp_path_factory.mktemp("s3"), ports_of_weed()
    endpoint = f"http://127.0.0.1:{ports['s3']}"
    with weed_server(data, ports), pytest.MonkeyPatch.context() as patch:
        for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"}).items():
            patch.setenv(name, value)
        wait_until(lambda: bucket_exists(endpoint), seconds=60, what="the S3 server's bucket", log=data / "weed.log")
        yield endpoint


def bucket_exists(endpoint: str) -> bool:
    import s3fs

    try:
        return bool(s3fs.S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True).exists("gif"))
    except (OSError, ValueError):
        return False


@pytest.fixture
def s3_url(s3_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty place on the S3 server, with a read cache of its own."""
    monkeypatch.setenv("GIF_CACHE", str(tmp_path / "cache"))
    return f"s3://gif/{tmp_path.name}-{os.urandom(4).hex()}"


@pytest.fixture(scope="session")
def running_process() -> Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]:
    """Start a server of a test's own; it is always stopped."""
    return running


@pytest.fixture(scope="session")
def wait() -> Callable[..., None]:
    """Wait for something to become true, or fail with the end of a log."""
    return wait_until


@pytest.fixture(scope="session")
def tiny_settings() -> dict[str, object]:
    """Settings of a run of seconds: thirty identities, a step or two of everything."""
    return TINY


@pytest.fixture
def tiny(tmp_path: Path) -> RunConfig:
    """The same, with a store of its own."""
    return load_config({**TINY, "store": str(tmp_path / "store")})


WriteShard = Callable[[Path, Sequence[tuple[int, str, bytes]], int], Path]


@pytest.fixture(scope="session")
def write_shard() -> WriteShard:
    """Writes identity, name and encoded image of some faces, `batch_size` of them in a record batch."""

    def write(path: Path, faces: Sequence[tuple[int, str, bytes]], batch_size: int) -> Path:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            for start in range(0, len(faces), batch_size):
                columns = zip(*faces[start : start + batch_size], strict=True)
                arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
                writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
        return path

    return write


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small matrices gain nothing from more threads, and lose much when the machine is busy."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


SHARED = PROJECT.parent / "shared" / "data"


@pytest.fixture
def photographs() -> Path:
    """Photographs of four people, a folder each, and of some strangers."""
    folder = SHARED / "photographs"
    if not folder.is_dir():
        pytest.skip("needs photographs")
    return folder


@pytest.fixture
def no_detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without a detector; gives the folder."""
    monkeypatch.setenv("GIF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def detector(no_detector: Path) -> Path:
    """The real detector, installed in a cache of its own; gives the file it was installed from."""
    from gif_core.detection import install_detector

    model = SHARED / "yunet" / "face_detection_yunet_2023mar.onnx"
    if not model.is_file():
        pytest.skip("needs the detector's model file")
    install_detector(str(model))
    return model
