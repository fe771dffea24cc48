"""A run whose stages are all cached, against an empty Prefect flow on the same server.

python benchmarks/cached_run.py [--rounds 9] [--processes]

Starts a Prefect server and an S3 server (SeaweedFS) of its own, runs the pipeline once on drawn faces with artifacts in
a folder and on the S3 server, and then an empty flow and the two cached runs in turn, all from one process. Ratios are
medians over the rounds. With --processes also as commands, each in a process of its own that has to import everything:
`gif run` against a Python file with an empty flow. In one process Prefect's heartbeats are off: at the end of a flow
it waits up to a second for their thread, the empty one too, which would hide the difference.

Between two flows there is a pause. The server records the tasks of a flow for a while after its end, and a flow that is
created meanwhile on SQLite, the empty one too, is sometimes answered with 503; then Prefect's client waits two seconds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from flows.cli.environment import prepare
from flows.cli.seaweed import BUCKET, free_ports, prepare_seaweed
from flows.cli.services import Services
from flows.cli.up import ask
from gif_core.runtime import ending_by_signal
from schemas.loading import load_config
from schemas.stages import INPUTS

PROJECT = Path(__file__).parents[1]
START_SECONDS = 180
PAUSE_SECONDS = 3
EMPTY = "from prefect import flow\n\n@flow\ndef empty():\n    pass\n\nempty()\n"
SETTINGS = {
    "preset": "demo",
    "ingestion": {"sources": [{"kind": "synthetic", "identities": 30, "smallest": 3, "largest": 6}], "held_out": 0.3},
    "separation": {"epochs": 5},
    "training": {"epochs": 1, "batch_size": 16, "warmup_steps": 0},
    "evaluation": {"pairs": 40, "sets": [{"kind": "held_out"}]},
    "reporting": {"compare": False},
}


def seconds(work: Callable[[], Any]) -> float:
    """Return the seconds a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, str]]:
    """Start both servers; yield the address of a store on each kind of storage."""
    seaweed, port = prepare_seaweed(folder / "s3"), free_ports(1)[0]
    (folder / "logs").mkdir()
    api = f"http://127.0.0.1:{port}/api"
    with (folder / "lock").open("w") as lock, ending_by_signal(), Services(folder / "logs", lock.fileno()) as services:
        services.start("s3", seaweed.command(), seaweed.environment, seaweed.folder)
        services.wait(seaweed.is_ready, START_SECONDS, "the S3 server")
        os.environ |= {**seaweed.environment, "PREFECT_API_URL": api, "GIF_CACHE": str(folder / "cache")}
        prepare()
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        services.start("server", command, {"PREFECT_HOME": str(folder / "prefect")}, folder)
        services.wait(lambda: ask(f"{api}/health") is True, START_SECONDS, "Prefect's server")
        yield {"local": str(folder / "store"), "s3": f"s3://{BUCKET}/store"}


def measure(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return median seconds, measured in turn, without the first round."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            time.sleep(PAUSE_SECONDS)
            times[name].append(seconds(work))
    return {name: median(taken[1:]) for name, taken in times.items()}


def in_one_process(stores: dict[str, str], rounds: int) -> dict[str, float]:
    """Measure flows that are called in this process; `tasks` is one with as many empty tasks as there are stages."""
    from prefect import flow, task
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows.pipeline import gif

    configs = {name: load_config({**SETTINGS, "store": store}) for name, store in stores.items()}
    for config in configs.values():
        gif(config)

    @flow
    def empty() -> None:
        pass

    @task
    def nothing() -> None:
        pass

    @flow
    def tasks() -> None:
        states: dict[str, Any] = {}
        for stage, inputs in INPUTS.items():
            states[stage] = nothing(wait_for=[states[name] for name in inputs], return_state=True)

    def run(name: str) -> None:
        actions = {done.action for done in gif(configs[name]).stages.values()}
        assert actions == {"reused"}

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        works = {"empty": empty, "tasks": tasks, "local": lambda: run("local"), "s3": lambda: run("s3")}
        return measure(works, rounds)


def as_commands(folder: Path, stores: dict[str, str], rounds: int) -> dict[str, float]:
    """Measure commands, each in its own process with all imports."""
    (folder / "empty.py").write_text(EMPTY)

    def command(name: str) -> list[str]:
        if name == "empty":
            return [sys.executable, str(folder / "empty.py")]
        (folder / f"{name}.yaml").write_text(json.dumps({**SETTINGS, "store": stores[name]}))
        return [sys.executable, "-m", "flows.cli", "run", "--config", str(folder / f"{name}.yaml")]

    def run(name: str) -> None:
        subprocess.run(command(name), cwd=PROJECT, capture_output=True, check=True)

    return measure({name: lambda name=name: run(name) for name in ("empty", *stores)}, rounds)


def report(title: str, times: dict[str, float]) -> dict[str, float]:
    """Print the times and return the ratios."""
    ratios = {
        f"{name}_over_empty": round(taken / times["empty"], 2) for name, taken in times.items() if name != "empty"
    }
    print(f"{title}: " + ", ".join(f"{name} {taken:.3f} s" for name, taken in times.items()))
    return ratios


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--processes", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, servers(Path(name)) as stores:
        metrics: dict[str, Any] = report("in one process", in_one_process(stores, given.rounds))
        if given.processes:
            metrics["as_commands"] = report("as commands", as_commands(Path(name), stores, given.rounds))
    print(json.dumps({"benchmark": "cached_run", "rounds": given.rounds, **metrics}))


if __name__ == "__main__":
    main()
