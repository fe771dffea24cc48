"""`gif deploy`: put the deployments and what watches over them on a Prefect server."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import flows
from flows.cli.environment import prepare
from schemas.errors import GifError

POOL = "gif"
DEPLOYMENTS = Path(flows.__file__).with_name("prefect.yaml")
PACKAGES = ("flows", "tasks", "gif_core", "schemas")


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
    it is; after an upgrade, `--reset` brings the deployments up to date. Workers run the flows of the package that is
    installed where they run, in the folder in which this command is called.
    """
    prepare()
    if not os.environ.get("PREFECT_API_URL"):
        raise GifError("PREFECT_API_URL is not set: it names the Prefect server to deploy to, as 'gif up' prints it")
    check_folder(Path.cwd())
    from flows.deployment import ensure_limit, ensure_pool, ensure_watch, missing_deployments

    ensure_pool(POOL, kind)
    wanted = missing_deployments(DEPLOYMENTS, reset=reset)
    if wanted:
        _put(wanted)
    ensure_limit()
    ensure_watch()


def check_folder(folder: Path) -> None:
    """Refuse a folder from which Prefect would import other packages of our names: it puts it first on the path."""
    others = [name for name in PACKAGES if (folder / name).is_dir()]
    if others and folder.resolve() != DEPLOYMENTS.parents[1].resolve():
        raise GifError(
            f"{folder} has folders that Prefect would import instead of the installed packages: {', '.join(others)}; "
            "call this command in another folder, in which runs are to work"
        )


def _put(wanted: Sequence[str]) -> None:
    """Put these deployments on the server; `-P`: folders of the current one must not hide our packages."""
    names = [part for name in wanted for part in ("--name", name)]
    command = [sys.executable, "-P", "-m", "prefect", "--no-prompt", "deploy", "--prefect-file", str(DEPLOYMENTS)]
    subprocess.run([*command, *names], check=True)
