"""The command line `gif`: all commands, and errors printed as one sentence."""

import logging
import os
import sys
from typing import Annotated

import typer

from flows.cli.commands import COMMANDS, add_command, add_summary

HELP = {"help_option_names": ["-h", "--help"]}


def build_app(*called: str) -> typer.Typer:
    """The application with the called commands; of all others it knows the line in the help."""
    app = typer.Typer(
        help="Train face recognition on identity codes: faces → vectors → code vectors → codes → model → scores.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=HELP,
    )
    app.callback()(options)
    for name in COMMANDS:
        (add_command if name in called else add_summary)(app, name)
    return app


def __getattr__(name: str) -> typer.Typer:
    """`app`: the application with all commands."""
    if name == "app":
        return build_app(*COMMANDS)
    raise AttributeError(name)


def _show_version(wanted: bool) -> None:
    if wanted:
        from gif_core.runtime import code_version

        print(f"gif {code_version()}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of `gif` itself; its help text is that of `app`."""


class _Notes(logging.Handler):
    """Print warnings of the artifact store, such as waiting for another run; with --verbose the log shows them.

    One that was just printed, such as of a source that is listed for its check and for its key, is not repeated.
    """

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self.last:
            return
        self.last = record.getMessage()
        if os.environ.get("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL") == "CRITICAL":
            from flows.cli.output import note

            note(record.getMessage())


_notes = _Notes(logging.WARNING)
NOTED = ("gif_core.artifacts", "gif_core.galleries", "gif_core.readers", "gif_core.planning")
"""Packages whose warnings the terminal shows."""


def main() -> None:
    """Run a command; user errors are printed as one sentence, with exit code 2.

    With `GIF_TRACEBACK` in the environment the whole traceback is shown instead.
    """
    _notes.last = ""
    for package in NOTED:
        logging.getLogger(package).addHandler(_notes)
    try:
        build_app(*sys.argv[1:2])()
    except Exception as error:
        if "GIF_TRACEBACK" in os.environ or not _is_expected(error):
            raise
        from flows.cli.output import say
        from schemas.errors import GifError

        hint = "" if isinstance(error, GifError) else " (GIF_TRACEBACK=1 shows where)"
        say("error: ", "bold red", f"{error}{hint}")
        sys.exit(2)


def _is_expected(error: Exception) -> bool:
    """Whether an error is about what the user gave, or about the store."""
    from schemas.errors import GifError

    return isinstance(error, GifError | ValueError | OSError) or type(error).__module__.startswith("botocore")
