"""The commands of `gif`, and where each is defined: a command's module is imported when the command is called."""

import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import typer

PANELS: Final = {
    "Run the pipeline": {
        "demo": "run.demo",
        "run": "run.run",
        "sweep": "sweep.sweep",
        "paper": "paper.paper",
        "config": "configuration.app",
        "estimate": "estimate.estimate",
    },
    "Look at results": {
        "runs": "runs.app",
        "compare": "compare.compare",
        "sql": "sql.sql",
        "codes": "codes.app",
        "separation": "separation.separation",
        "evaluate": "evaluate.evaluate",
    },
    "Use a model": {
        "embed": "recognition.embed",
        "verify": "recognition.verify",
        "identify": "recognition.identify",
        "enroll": "galleries.enroll",
        "gallery": "galleries.app",
        "serve": "serve.serve",
        "export": "export.app",
        "pull": "pull.pull",
        "detector": "detector.app",
    },
    "Operate": {
        "up": "up.up",
        "deploy": "deploy.deploy",
        "retrain": "promote.retrain",
        "champion": "promote.champion",
        "promote": "promote.promote",
        "rollback": "promote.rollback",
        "artifacts": "artifacts.app",
        "doctor": "doctor.doctor",
        "bench": "bench.bench",
    },
    "Faces and encoders": {
        "faces": "faces.app",
        "encode": "encoders.encode",
        "tiny-clip": "encoders.app",
        "synthetic-sets": "synthetic_sets.synthetic_sets",
    },
}
"""By heading of the help: module and function of each command, or module and `app` of a group of commands."""
COMMANDS: Final = {name: place for commands in PANELS.values() for name, place in commands.items()}
PANEL_OF: Final = {name: panel for panel, commands in PANELS.items() for name in commands}


def add_command(app: typer.Typer, name: str) -> None:
    """Import a command and add it."""
    module, _, attribute = COMMANDS[name].partition(".")
    found = getattr(import_module(f"flows.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name, rich_help_panel=PANEL_OF[name])
    else:
        app.command(name, rich_help_panel=PANEL_OF[name])(found)


def add_summary(app: typer.Typer, name: str) -> None:
    """Add a command that is listed and not called: its line in the help is read from the source, without an import."""

    def stub() -> None: ...

    stub.__doc__ = summary_of(name)
    app.command(name, rich_help_panel=PANEL_OF[name])(stub)


def summary_of(name: str) -> str:
    """The first line of a command's help."""
    module, _, attribute = COMMANDS[name].partition(".")
    spec = find_spec(f"flows.cli.{module}")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    if attribute == "app":
        found = re.search(r'^app = typer\.Typer\(\s*help="([^"]*)"', text, re.MULTILINE)
    else:
        found = re.search(rf'^def {attribute}\(.*?"""(.*?)"""', text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return inspect.cleandoc(found.group(1)).splitlines()[0]
