"""The page of the command line, from the typer application."""

import textwrap
from collections.abc import Iterator
from enum import Enum
from typing import Any

from markdown_pieces import code, table
from typer.main import get_command

from flows.cli.app import app

INTRODUCTION = """# Command line

Generated from the commands themselves; `gif COMMAND --help` prints the same. Every command that reads a store takes
`--store`, and without it uses `$GIF_STORE`, or the folder `artifacts`. Errors that you can mend are one sentence with
exit code 2; `GIF_TRACEBACK=1` shows the traceback.
"""


def page() -> str:
    """The whole page."""
    sections = [f"## {name}\n\n{_describe(command, name)}" for name, command in commands()]
    return "\n".join([INTRODUCTION, *sections])


def commands(command: Any = None, name: str = "gif") -> Iterator[tuple[str, Any]]:
    """Every command that can be called, with its whole name."""
    command = command or get_command(app)
    children = getattr(command, "commands", None)
    if not children:
        yield name, command
        return
    for child, found in children.items():
        yield from commands(found, f"{name} {child}")


def _describe(command: Any, name: str) -> str:
    text, _, examples = textwrap.dedent(command.help or "").strip().partition("Examples:")
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
    parts = [" ".join(paragraph.split()) + "\n" for paragraph in text.split("\n\n") if paragraph.strip()]
    parts += [f"```text\n{' '.join([name, *map(_argument, arguments), *(['[OPTIONS]'] if options else [])])}\n```\n"]
    parts += [table(["argument", "meaning"], ([code(_argument(each)), _meaning(each)] for each in arguments))]
    rows = ([_flags(each), _default(each), _meaning(each)] for each in options)
    parts += [table(["option", "default", "meaning"], rows)]
    if examples.strip():
        parts += [
            "```\n" + "\n".join(line.strip() for line in examples.strip().splitlines() if line.strip()) + "\n```\n"
        ]
    return "\n".join(part for part in parts if part)


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    name = name if parameter.required or name.startswith("[") else f"[{name}]"
    return f"{name}…" if parameter.nargs == -1 else name


def _flags(parameter: Any) -> str:
    value = "" if parameter.is_flag else f" {parameter.metavar or _kind(parameter)}"
    return ", ".join(code(f"{flag}{value}") for flag in parameter.opts)


def _kind(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(each.value) for each in annotation)
    return {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "Path": "FILE"}.get(annotation.__name__, "VALUE")


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if parameter.required:
        return "required"
    value = getattr(parameter.default, "value", parameter.default)
    return "" if parameter.is_flag or value is None or callable(value) else code(value)


def _meaning(parameter: Any) -> str:
    return parameter.help or ""
