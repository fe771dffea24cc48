"""`gif`: the commands, and errors that a person can read."""

import sys

import typer
from rich.console import Console

from flows.cli import artifacts, configuration, run, runs, sql
from gif_core.artifacts import ArtifactDamagedError, ArtifactMissingError
from gif_core.queries import QueryError
from schemas.loading import ConfigError

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
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(runs.app, name="runs")

EXPECTED = (ConfigError, ArtifactDamagedError, ArtifactMissingError, QueryError)


def main() -> None:
    """Run a command; a fault of the user's is told in a sentence and ends with 2."""
    try:
        app()
    except EXPECTED as error:
        Console(stderr=True).print(f"[red bold]error:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(2)
