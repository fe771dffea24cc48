"""`gif`: the commands, and errors that a person can read."""

import os
import sys

import typer
from rich.console import Console

from flows.cli import artifacts, configuration, faces, run, runs, sql
from schemas.errors import GifError

app = typer.Typer(
    help="Train face recognition on identity codes: faces → vectors → code vectors → codes → model → scores.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(run.demo)
app.command("run")(run.run)
app.command("sql")(sql.sql)
app.add_typer(configuration.app, name="config")
app.add_typer(faces.app, name="faces")
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(runs.app, name="runs")

EXPECTED = (GifError, ValueError, FileNotFoundError)


def main() -> None:
    """Run a command; what a person can mend is told in a sentence, with exit code 2.

    With `GIF_TRACEBACK` in the environment the whole traceback is shown as well.
    """
    try:
        app()
    except EXPECTED as error:
        if "GIF_TRACEBACK" in os.environ:
            raise
        Console(stderr=True).print(f"[red bold]error:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(2)
