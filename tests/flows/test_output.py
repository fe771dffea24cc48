"""What commands print: no control of the terminal from data, and help that names everything."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from rich.table import Table
from rich.text import Text

from flows.cli import sql
from flows.cli.output import Console
from gif_core.artifacts.sql_tables import TABLES

Gif = Callable[..., str]
HOSTILE = "ann\x1b]0;owned\x07\x1b[2J\u202egpj\r"


def test_a_label_with_escape_sequences_reaches_no_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=100)
    table = Table("label")
    table.add_row(HOSTILE)
    console.print(table, Text.assemble(("error: ", "bold red"), HOSTILE), soft_wrap=True)
    printed = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert r"ann\x1b]0;owned\x07\x1b[2J\u202egpj\r" in printed, "the whole cell is seen"
    assert r"error: ann\x1b]0;owned" in printed
    assert not set("\x1b\x07\u202e\r") & set(printed)
    assert "\x1b[1;31m" in out.getvalue(), "colours of its own stay"


@pytest.mark.parametrize("on_terminal", [True, False])
def test_csv_is_escaped_on_a_terminal_and_exact_in_a_file(on_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: on_terminal)
    monkeypatch.setattr("sys.stdout", out)
    sql._print_csv(pa.table({"label": [HOSTILE, None]}))
    assert (HOSTILE in out.getvalue()) != on_terminal
    assert (r"\x1b]0;owned" in out.getvalue()) == on_terminal


def test_an_error_about_a_hostile_name_shows_it_escaped(run_gif: Gif) -> None:
    printed = run_gif("config", "validate", f"no-{HOSTILE}.yaml", code=2)
    assert r"ann\x1b]0;owned" in printed
    assert "\x1b]" not in printed


def test_the_help_of_sql_names_every_table(run_gif: Gif) -> None:
    printed = run_gif("sql", "--help")
    assert [name for name in sorted(TABLES) if not re.search(rf"\b{name}\b", printed)] == []


def test_a_vector_is_shortened_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    sql._print_table(pa.table({"vector": [[0.123456] * 512], "code": [[1, 2, 3]]}))
    printed = " ".join(capsys.readouterr().out.split())
    assert "[0.1235, 0.1235, 0.1235, 0.1235, … 512 values]" in printed
    assert "[1, 2, 3]" in printed


def test_a_pipe_given_as_a_configuration_is_no_file(run_gif: Gif, tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "run.yaml")
    assert "neither a file nor a preset" in run_gif("config", "validate", str(tmp_path / "run.yaml"), code=2)
