"""`gif deploy`: put the deployments and what watches over them on a Prefect server."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import flows
from flows.cli.environment import prepare
from schemas.errors import GifError

POOL = "gif"


def deploy(
    kind: Annotated[
        str, typer.Option("--type", help="Kind of the work pool `gif`, if there is none yet: process, docker, …")
    ] = "process",
    reset: Annotated[
        bool,
        typer.Option(
            "--reset", help="Set deployments that are there already to what prefect.yaml says, schedules too."
        ),
    ] = False,
) -> None:
    """Deploy to the Prefect server that PREFECT_API_URL names, as often as you like.

    Makes the work pool `gif`, the deployments of prefect.yaml, the limit of one training at a time, and the automation
    that marks runs as Crashed whose process is gone. What is there already, and may have been changed by hand, stays as
    it is; after an upgrade, `--reset` brings the deployments up to date.
    """
    prepare()
    project = project_folder()
    if not os.environ.get("PREFECT_API_URL"):
        raise GifError("PREFECT_API_URL is not set: it names the Prefect server to deploy to, as 'gif up' prints it")
    from flows.deployment import ensure_limit, ensure_pool, ensure_watch, missing_deployments

    ensure_pool(POOL, kind)
    wanted = missing_deployments(project / "prefect.yaml", reset=reset)
    if wanted:
        names = [part for name in wanted for part in ("--name", name)]
        subprocess.run([sys.executable, "-m", "prefect", "--no-prompt", "deploy", *names], cwd=project, check=True)
    ensure_limit()
    ensure_watch()


def project_folder() -> Path:
    """The folder of prefect.yaml, from which deployments load the code."""
    folder = Path(flows.__file__).parents[1]
    if not (folder / "prefect.yaml").is_file():
        raise GifError(f"there is no prefect.yaml in {folder}: install from a checkout with pip install --editable .")
    return folder
