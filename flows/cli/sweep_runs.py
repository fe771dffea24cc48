"""The runs of a sweep: processes on this machine, or runs of the deployed pipeline on a work pool."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import typer

from flows.cli.app import main
from flows.cli.environment import names_server, prepare
from flows.cli.output import Console, note
from flows.forked import run_forked, watched_pipe
from gif_core.artifacts import ArtifactStore
from gif_core.planning import check_before_run, is_scored, plan_stages
from gif_core.runtime import ending_by_signal
from schemas.errors import GifError
from schemas.stages import STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection
    from uuid import UUID

    from schemas.run import RunConfig


def run_here(runs: Sequence[tuple[str, RunConfig, list[str]]], jobs: int) -> int:
    """Run those of which the scores are not stored, `jobs` at a time; how many failed.

    Each has its name, its settings, and the same as arguments of `gif run`. All report to one Prefect server.
    """
    faults = [find_fault(given) for _, given, _ in runs]
    waiting = [
        arguments
        for (_, given, arguments), fault in zip(runs, faults, strict=True)
        if not fault and not is_scored(given)
    ]
    server, failed = _find_server() if waiting else "", 0
    with ThreadPoolExecutor(jobs) as pool, _ending_runs(pool) as watched:
        errors = pool.map(partial(run_forked, _call, server=server, watched=watched), waiting)
        for place, ((name, _, arguments), fault) in enumerate(zip(runs, faults, strict=True), start=1):
            error = next(errors) if arguments in waiting else fault
            failed += error is not None
            _tell(place, len(runs), name, error)
    return failed


@contextmanager
def _ending_runs(pool: ThreadPoolExecutor) -> Iterator[Connection]:
    """The pipe that runs watch; when the sweep is told to end, they end first."""
    try:
        with ending_by_signal(), watched_pipe() as watched:
            yield watched
    except KeyboardInterrupt:
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


def _call(arguments: list[str]) -> None:
    """`gif run` in this process."""
    sys.argv = ["gif", "run", *arguments]
    main()
