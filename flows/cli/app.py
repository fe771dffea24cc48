"""The command line `gif`: all commands, and errors printed as one sentence."""

import logging
import os
import sys
from typing import Annotated

import typer
from rich.text import Text

from flows.cli import (
    artifacts,
    codes,
    compare,
    configuration,
    deploy,
    detector,
    doctor,
    encoders,
    export,
    faces,
    galleries,
    promote,
    recognition,
    run,
    runs,
    sql,
    synthetic_sets,
    up,
)
from flows.cli.output import Console
from gif_core.runtime import code_version
from schemas.addresses import hide_credentials
from schemas.errors import GifError

app = typer.Typer(
    help="Train face recognition on identity codes: faces → vectors → code vectors → codes → model → scores.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(run.demo)
app.command("run")(run.run)
app.command("up")(up.up)
app.command("deploy")(deploy.deploy)
app.command("doctor")(doctor.doctor)
app.command("retrain")(promote.retrain)
app.command("promote")(promote.promote)
app.command("rollback")(promote.rollback)
app.command("champion")(promote.champion)
app.command("sql")(sql.sql)
app.command("compare")(compare.compare)
app.command("encode")(encoders.encode)
app.command("embed")(recognition.embed)
app.command("verify")(recognition.verify)
app.command("identify")(recognition.identify)
app.command("enroll")(galleries.enroll)
app.command("synthetic-sets")(synthetic_sets.synthetic_sets)
app.add_typer(configuration.app, name="config")
app.add_typer(faces.app, name="faces")
app.add_typer(codes.app, name="codes")
app.add_typer(encoders.app, name="tiny-clip")
app.add_typer(export.app, name="export")
app.add_typer(galleries.app, name="gallery")
app.add_typer(detector.app, name="detector")
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(runs.app, name="runs")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"gif {code_version()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of `gif` itself; its help text is that of `app`."""


EXPECTED = (GifError, ValueError, OSError)


class _Notes(logging.Handler):
    """Print warnings of the artifact store, such as waiting for another run; with --verbose the log shows them."""

    def emit(self, record: logging.LogRecord) -> None:
        if os.environ.get("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL") == "CRITICAL":
            text = Text.assemble(("note: ", "bold yellow"), hide_credentials(record.getMessage()))
            Console(stderr=True).print(text, soft_wrap=True)


_notes = _Notes(logging.WARNING)


def main() -> None:
    """Run a command; user errors are printed as one sentence, with exit code 2.

    With `GIF_TRACEBACK` in the environment the whole traceback is shown instead.
    """
    logging.getLogger("gif_core.artifacts").addHandler(_notes)
    try:
        app()
    except Exception as error:
        of_storage = type(error).__module__.startswith("botocore")
        if "GIF_TRACEBACK" in os.environ or not (isinstance(error, EXPECTED) or of_storage):
            raise
        hint = "" if isinstance(error, GifError) else " (GIF_TRACEBACK=1 shows where)"
        text = Text.assemble(("error: ", "bold red"), hide_credentials(f"{error}{hint}"))
        Console(stderr=True).print(text, soft_wrap=True)
        sys.exit(2)
