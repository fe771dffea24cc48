"""`gif up`: run a Prefect server, a worker and the deployments on this machine."""

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import typer

from flows.cli.deploy import POOL
from flows.cli.environment import DEFAULTS, SERVER, WATCHED
from flows.cli.locking import hold_alone, sign_lock
from flows.cli.output import Console
from flows.cli.seaweed import BUCKET, is_free, prepare_seaweed, write_private
from flows.cli.services import Services
from gif_core.runtime import ending_by_signal
from schemas.errors import GifError
from schemas.run import default_store

LOOPBACK = "127.0.0.1"
START_SECONDS = 180
WORKER = "gif-up"


def up(
    s3: Annotated[bool, typer.Option("--s3", help="Also start an S3 server and store artifacts in it.")] = False,
    port: Annotated[int, typer.Option(help="Port of Prefect's server and UI.")] = 4200,
    host: Annotated[str, typer.Option(help="Address that Prefect's server binds to; it has no password.")] = (LOOPBACK),
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the database, logs and objects.")] = Path(
        "gif-data"
    ),
) -> None:
    """Start a Prefect server, a worker and the deployments; stop all of them with Ctrl-C.

    Examples:
      gif up

      gif up --s3 --data /srv/gif
    """
    folder, notes = data.absolute(), Console(stderr=True)
    (folder / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with (
            ending_by_signal(),
            hold_alone(folder / "up.lock") as lock,
            Services(folder / "logs", lock.fileno()) as services,
        ):
            services.leave(folder / "up.lock")
            services.leave(folder / "env")
            _check_port(host, port)
            ui = f"http://{LOOPBACK if host == '0.0.0.0' else host}:{port}"
            sign_lock(lock, ui)
            (folder / "env").unlink(missing_ok=True)
            with notes.status("Starting …") as status:
                settings = _start(services, folder, host, ui, s3=s3, report=status.update)
            _print_hints(notes, folder, ui, settings)
            _wait_for_the_end(services, folder / "env")
    except KeyboardInterrupt:
        notes.print("All processes have stopped.")


def _start(
    services: Services, folder: Path, host: str, ui: str, *, s3: bool, report: Callable[[str], None]
) -> Mapping[str, str]:
    """Start all services in order, waiting for each to be healthy; return the environment that commands need."""
    here, python = Path.cwd(), [sys.executable, "-P", "-m"]
    settings = {**DEFAULTS, **WATCHED, "PREFECT_API_URL": f"{ui}/api", "GIF_STORE": _store()}
    if s3:
        report("Starting the S3 server …")
        seaweed = prepare_seaweed(folder / "s3")
        sockets = list(seaweed.sockets.values())
        services.start("S3", seaweed.command(), seaweed.environment, seaweed.folder, leaves=sockets)
        services.wait(seaweed.is_ready, START_SECONDS, "the start of the S3 server")
        settings |= {**seaweed.environment, "GIF_STORE": f"s3://{BUCKET}/artifacts"}
    inside = {**settings, **SERVER, "PREFECT_HOME": str(folder / "prefect")}
    report("Starting Prefect's server …")
    command = [*python, "prefect", "server", "start", "--host", host, "--port", ui.rsplit(":", 1)[1]]
    services.start("server", command, inside, here)
    services.wait(lambda: ask(f"{ui}/api/health") is True, START_SECONDS, "the start of Prefect's server")
    report("Deploying …")
    services.run("deploy", [*python, "flows.cli", "deploy"], inside, here)
    report("Starting the worker …")
    begun = datetime.now(UTC)
    services.start("worker", [*python, "prefect", "worker", "start", "--pool", POOL, "--name", WORKER], inside, here)
    services.wait(lambda: _works(ui, begun), START_SECONDS, "the start of the worker")
    return settings


def _store() -> str:
    """The default store, as an absolute path: the same for the worker and for commands typed in this folder."""
    store = default_store()
    return store if "://" in store else str(Path(store).absolute())


def _check_port(host: str, port: int) -> None:
    if not is_free(port, host):
        raise GifError(f"port {port} of {host} is already in use: choose another with --port")


def ask(url: str, question: object = None) -> Any:
    """The answer of the server on this machine, or None if it does not answer; proxies are not used."""
    body = None if question is None else json.dumps(question).encode()
    request = Request(url, body, {"Content-Type": "application/json"})
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=5) as answer:
            return json.load(answer)
    except (URLError, OSError, ValueError):
        return None


def _works(ui: str, since: datetime) -> bool:
    """Whether the worker has sent the server a heartbeat."""
    workers = ask(f"{ui}/api/work_pools/{POOL}/workers/filter", {}) or []
    return any(
        worker["name"] == WORKER and datetime.fromisoformat(worker["last_heartbeat_time"]) >= since
        for worker in workers
    )


def _print_hints(notes: Console, folder: Path, ui: str, settings: Mapping[str, str]) -> None:
    """Print where everything is and what to type next; the settings go to a file, since some are secret."""
    file = folder / "env"
    write_private(file, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()))
    shown = os.path.relpath(file)
    notes.print(
        f"Prefect's UI   {ui}\nartifacts      {settings['GIF_STORE']}\nlogs           {folder / 'logs'}\n\n"
        f"In another terminal:\n"
        f"  . {shown if not shown.startswith('..') else file}\n"
        f"  prefect deployment run gif/full-pipeline --watch\n"
        f"  gif runs ls\n\n"
        f"Ctrl-C stops everything.",
        highlight=False,
        soft_wrap=True,
    )


def _wait_for_the_end(services: Services, env: Path) -> None:
    """Wait until an interrupt, or until one of the processes ends."""
    try:
        while True:
            services.check()
            time.sleep(0.5)
    finally:
        env.unlink(missing_ok=True)
