"""Every `gif …` command of README and docs is one that the command line accepts; nothing is run."""

import re
import shlex
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from flows.cli.app import app
from schemas.loading import load_config
from tests.docs.pages import PAGES, blocks, name_of, prose

SHELL = {"", "bash", "console", "shell"}
MESSAGES = "## Troubleshooting by message"
"""The first column below this heading has messages, which may begin like a command."""


def in_blocks(page: Path) -> Iterator[str]:
    """Whole commands."""
    for block in blocks(page):
        for line in block.text.replace("\\\n", " ").splitlines() if block.language in SHELL else ():
            if match := re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(gif .*)", line):
                yield match[1]


def in_text(page: Path) -> Iterator[str]:
    """Commands, or the beginning of one such as `gif run --only`."""
    text, _, messages = prose(page).partition(MESSAGES)
    text += "".join(f" {row.partition(' | ')[2]}" for row in messages.splitlines())
    yield from (" ".join(found.split()) for found in re.findall(r"`(gif [^`]+)`", text))


WHOLE = sorted({(name_of(page), command) for page in PAGES for command in in_blocks(page)})
MENTIONED = sorted({(name_of(page), command) for page in PAGES for command in in_text(page)})


def test_the_pages_have_commands() -> None:
    assert len(WHOLE) > 50
    assert len(MENTIONED) > 30


@pytest.mark.parametrize(("page", "text"), WHOLE, ids=[f"{page}: {text}" for page, text in WHOLE])
def test_a_command_is_accepted(page: str, text: str) -> None:
    command, arguments = find(text)
    assert not hasattr(command, "commands"), "a command of this group is missing"
    context = command.context_class(command, info_name=command.name)
    given, _, _ = command.make_parser(context).parse_args(arguments)
    for parameter in command.params:
        value = given.get(parameter.name)
        assert value is not None or not parameter.required, f"{parameter.name} is missing"
        kind = parameter.type_descriptor.annotation
        if value is not None and isinstance(kind, type) and issubclass(kind, Enum):
            assert value in {each.value for each in kind}
    if command.name in {"run", "retrain"}:
        load_config(given.get("preset") or "demo", given.get("overrides"))


@pytest.mark.parametrize(("page", "text"), MENTIONED, ids=[f"{page}: {text}" for page, text in MENTIONED])
def test_a_command_that_is_mentioned_is_there_with_its_options(page: str, text: str) -> None:
    command, arguments = find(text)
    known = {"--help", *(flag for parameter in command.params for flag in parameter.opts + parameter.secondary_opts)}
    assert {argument for argument in arguments if argument.startswith("-")} <= known


def find(text: str) -> tuple[Any, list[str]]:
    """The command that a text calls, and what follows its name."""
    command, arguments = get_command(app), shlex.split(text, comments=True)[1:]
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-") and arguments[0] != "COMMAND":
        assert arguments[0] in command.commands, f"there is no command {arguments[0]!r}"
        command = command.commands[arguments.pop(0)]
    return command, arguments
