"""The runs of a sweep: processes on this machine, or runs of the deployed pipeline on a work pool."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

import typer

from flows.cli.app import main
from flows.cli.environment import names_server, prepare
from flows.cli.output import Console, note
from flows.cli.services import ending_by_signal
from gif_core.artifacts import ArtifactStore
from gif_core.planning import check_before_run, plan_stages
from schemas.errors import GifError
from schemas.stages import STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from uuid import UUID

    from schemas.run import RunConfig

IMPORTED: Final = (
    "flows.cli.run",
    "flows.pipeline",
    *(f"tasks.{stage}" for stage in STAGES),
    "gif_core.embedding.encoders.open_clip_encoder",
    "gif_core.training.worker",
)
"""What runs need: imported once, by the process from which those of the runs are forked."""
PATIENCE: Final = 30.0
"""Seconds between SIGINT, SIGTERM and SIGKILL to a run whose sweep has ended: enough for a checkpoint."""

_exit_codes = Lock()
"""Each exit code can be read once, and starting a process reads those of all that have ended."""


def run_here(runs: Sequence[tuple[str, RunConfig, list[str]]], jobs: int) -> int:
    """Run those of which the scores are not stored, `jobs` at a time; how many failed.

    Each has its name, its settings, and the same as arguments of `gif run`. All report to one Prefect server.
    """
    faults = [find_fault(given) for _, given, _ in runs]
    waiting = [
        arguments
        for (_, given, arguments), fault in zip(runs, faults, strict=True)
        if not fault and not _is_scored(given)
    ]
    server, failed = _find_server() if waiting else None, 0
    watched, held = multiprocessing.Pipe(duplex=False)
    with ThreadPoolExecutor(jobs) as pool, _ending_runs(pool, held):
        errors = pool.map(partial(_run, server=server, watched=watched), waiting)
        for place, ((name, _, arguments), fault) in enumerate(zip(runs, faults, strict=True), start=1):
            error = next(errors) if arguments in waiting else fault
            failed += error is not None
            _tell(place, len(runs), name, error)
    return failed


@contextmanager
def _ending_runs(pool: ThreadPoolExecutor, held: Connection) -> Iterator[None]:
    """When the sweep is told to end, its runs end first; they watch a pipe that only this process holds open."""
    try:
        with ending_by_signal():
            yield
    except KeyboardInterrupt:
        held.close()
        pool.shutdown(cancel_futures=True)
        note("interrupted. What is finished is stored: the same command continues.")
        raise typer.Exit(130) from None


def find_fault(given: RunConfig) -> str | None:
    """Why a run cannot begin: what it reads is not there, or it would score nothing."""
    try:
        check_before_run(ArtifactStore(given.store), given, STAGES)
    except GifError as error:
        return str(error)
    return None


def _is_scored(given: RunConfig) -> bool:
    return plan_stages(ArtifactStore(given.store), given)["evaluation"].action == "reuse"


def _find_server() -> str:
    """The address of the Prefect server that is set, or of one for this command."""
    prepare()
    from flows.cli.server import ensure_server

    return ensure_server(Console(stderr=True))


def run_on_pool(settings: Sequence[tuple[str, RunConfig]], pool: str) -> int:
    """Submit every run of which the scores are not stored, each with its name, and wait for all; how many failed."""
    if not names_server():
        raise GifError("--work-pool needs a Prefect server: set PREFECT_API_URL, as 'gif up' prints it")
    prepare()
    from flows.submission import has_worker, wait_for_runs

    submitted = _submit(settings, pool)
    if submitted and not has_worker(pool):
        note(f"no worker of {pool} is there, so the runs wait: prefect worker start --pool {pool}")
    failed, place = 0, len(settings) - len(submitted)
    for ended, error in wait_for_runs([run for _, run in submitted]):
        for name in (name for name, run in submitted if run == ended):
            place, failed = place + 1, failed + (error is not None)
            _tell(place, len(settings), name, error)
    return failed


def _submit(settings: Sequence[tuple[str, RunConfig]], pool: str) -> list[tuple[str, UUID]]:
    """The flow runs of those whose scores are not stored."""
    from flows.submission import find_deployment, submit_run

    deployment, stored = find_deployment(pool), 0
    submitted: list[tuple[str, UUID]] = []
    for name, given in settings:
        plan = plan_stages(ArtifactStore(given.store), given)["evaluation"]
        if plan.action == "reuse":
            stored += 1
            _tell(stored, len(settings), name, None)
        else:
            submitted.append((name, submit_run(deployment, given, plan.ref.key, f"sweep: {name}")))
    return submitted


def _tell(place: int, total: int, name: str, error: str | None) -> None:
    note(f"run {place} of {total}: {name}: {f'failed: {error}' if error else 'done'}")


def _run(arguments: list[str], server: str | None, watched: Connection) -> str | None:
    """One run in a process of its own; its error if it fails."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    with TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        said.touch()
        process = context.Process(target=_call, args=(arguments, server, said, watched))
        return _find_error(said.read_text(errors="replace")) if finish(process) else None


def finish(process: BaseProcess) -> int | None:
    """Start a process and wait for it; its exit code."""
    with _exit_codes:
        process.start()
    wait([process.sentinel])
    with _exit_codes:
        process.join()
    return process.exitcode


def _call(arguments: list[str], server: str, said: Path, watched: Connection) -> None:
    """Call `gif run` in this process; all that it says goes into a file.

    It is in a session of its own, so that Ctrl-C reaches the sweep alone, which then ends its runs.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    os.setsid()
    Thread(target=_end_with_sweep, args=(watched,), daemon=True).start()
    with said.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.argv, os.environ["PREFECT_API_URL"] = ["gif", "run", *arguments], server
    with ending_by_signal(), temporary_settings({PREFECT_API_URL: server}):
        main()


def _end_with_sweep(watched: Connection) -> None:
    """End this process as Ctrl-C does when the sweep has ended, also if that was killed."""
    watched.poll(None)
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        os.kill(os.getpid(), sign)
        time.sleep(PATIENCE)


def _find_error(said: str) -> str:
    """The error among what a run has said, else its last line."""
    lines = said.strip().splitlines() or ["without a word"]
    return next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), lines[-1])
