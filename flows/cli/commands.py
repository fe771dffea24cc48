"""The commands of `gif`, and where each is defined: a command's module is imported when the command is called."""

import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import typer

COMMANDS: Final = {
    "demo": "run.demo",
    "run": "run.run",
    "sweep": "sweep.sweep",
    "paper": "paper.paper",
    "up": "up.up",
    "deploy": "deploy.deploy",
    "doctor": "doctor.doctor",
    "bench": "bench.bench",
    "estimate": "estimate.estimate",
    "retrain": "promote.retrain",
    "promote": "promote.promote",
    "rollback": "promote.rollback",
    "champion": "promote.champion",
    "sql": "sql.sql",
    "evaluate": "evaluate.evaluate",
    "compare": "compare.compare",
    "separation": "separation.separation",
    "encode": "encoders.encode",
    "embed": "recognition.embed",
    "verify": "recognition.verify",
    "identify": "recognition.identify",
    "enroll": "galleries.enroll",
    "serve": "serve.serve",
    "synthetic-sets": "synthetic_sets.synthetic_sets",
    "config": "configuration.app",
    "faces": "faces.app",
    "codes": "codes.app",
    "tiny-clip": "encoders.app",
    "export": "export.app",
    "pull": "pull.pull",
    "detector": "detector.app",
    "artifacts": "artifacts.app",
    "runs": "runs.app",
    "gallery": "galleries.app",
}
"""Module and function of each command, or module and `app` of a group of commands, in the order of the help."""


def add_command(app: typer.Typer, name: str) -> None:
    """Import a command and add it."""
    module, _, attribute = COMMANDS[name].partition(".")
    found = getattr(import_module(f"flows.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name)(found)


def add_summary(app: typer.Typer, name: str) -> None:
    """Add a command that is listed and not called: its line in the help is read from the source, without an import."""

    def stub() -> None: ...

    stub.__doc__ = summary_of(name)
    app.command(name)(stub)


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
