"""The runs of a sweep: processes on this machine, or runs of the deployed pipeline on a work pool."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from flows.cli.environment import names_server, prepare
from flows.cli.output import note
from gif_core.artifacts import ArtifactStore
from gif_core.planning import plan_stages
from schemas.errors import GifError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from schemas.run import RunConfig


def run_here(commands: Sequence[tuple[str, list[str]]], jobs: int) -> int:
    """Run every command of `gif run`, each with the name of its run, `jobs` at a time; how many failed."""
    with ThreadPoolExecutor(jobs) as pool:
        results = pool.map(_run, [arguments for _, arguments in commands])
        failed = 0
        for place, ((name, _), error) in enumerate(zip(commands, results, strict=True), start=1):
            failed += error is not None
            _tell(place, len(commands), name, error)
    return failed


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


def _run(arguments: list[str]) -> str | None:
    """One run in a process of its own; its error if it fails, else the last line of what it says."""
    command = [sys.executable, "-m", "flows.cli", "run", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    if not done.returncode:
        return None
    said = done.stderr.strip().splitlines() or ["without a word"]
    return next((line.removeprefix("error: ") for line in reversed(said) if line.startswith("error: ")), said[-1])
