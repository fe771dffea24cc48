"""`gif deploy`: create the deployments, the work pool, the training limit and the crash watch on a Prefect server."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
import yaml

import flows
from flows.cli.environment import prepare
from flows.work_folder import check_folder
from schemas.errors import GifError

POOL = "gif"
DEPLOYMENTS = Path(flows.__file__).with_name("prefect.yaml")


def deploy(
    kind: Annotated[
        str, typer.Option("--type", help="Type of the work pool `gif`, if it has to be created: process, docker, …")
    ] = "process",
    reset: Annotated[
        bool,
        typer.Option("--reset", help="Reset existing deployments to prefect.yaml, including their schedules."),
    ] = False,
    notify: Annotated[
        str | None,
        typer.Option(metavar="TYPE/NAME", help="Tell this notification block of the server what happens to runs."),
    ] = None,
    silence: Annotated[
        int,
        typer.Option(min=1, metavar="WEEKS", help="With --notify: tell when retraining decided nothing for so long."),
    ] = 4,
) -> None:
    """Deploy the flows to the Prefect server at PREFECT_API_URL; repeating the command is safe.

    Creates the work pool `gif`, the deployments of prefect.yaml, a limit of one training at a time, and the automation
    that marks runs as Crashed when their process is gone. Existing objects, which may have been edited, are kept; after
    an upgrade, `--reset` updates the deployments. Workers run the flows of the package installed in their environment.
    Runs work in the folder GIF_FOLDER of the worker, else in the one in which this command is called if the worker's
    machine has it, else in ~/gif.

    With --notify, failed, crashed and late runs and every decision of retraining (first, promoted, refused), with its
    metrics and a link, are sent to a notification block, and so is long silence.

    Examples:
      gif deploy

      gif deploy --reset

      gif deploy --notify slack-webhook/team
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
    if notify is not None:
        from flows.notifications import ensure_notifications

        print("\n".join(ensure_notifications(notify, timedelta(weeks=silence))))


def _put(wanted: Sequence[str]) -> None:
    """Put these deployments on the server; with `-P` the current folder cannot hide the installed packages."""
    names = [part for name in wanted for part in ("--name", name)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / DEPLOYMENTS.name
        file.write_text(describe(Path.cwd()), "utf-8")
        command = [sys.executable, "-P", "-m", "prefect", "--no-prompt", "deploy", "--prefect-file", str(file)]
        subprocess.run([*command, *names], check=True)


def describe(folder: Path) -> str:
    """prefect.yaml with the step that chooses the folder of a run on its worker, by default this one."""
    step = {"flows.work_folder.enter": {"folder": str(folder)}}
    return DEPLOYMENTS.read_text("utf-8") + "\n" + yaml.safe_dump({"pull": [step]})
