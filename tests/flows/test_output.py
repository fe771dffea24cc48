"""What commands print: no control of the terminal from data, and help that names everything."""

import io
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from rich.table import Table
from rich.text import Text
from typer.main import get_command

from flows.cli import sql
from flows.cli.app import build_app
from flows.cli.commands import COMMANDS
from flows.cli.milestones import milestones_printed
from flows.cli.output import Console
from gif_core.artifacts.sql_tables import TABLES
from gif_core.runtime import milestones, milestones_beside

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


def test_a_note_about_a_source_that_is_listed_twice_is_printed_once(
    run_gif: Gif, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr("flows.cli.output.note", notes.append)
    (tmp_path / "1.jpg").write_bytes(b"x")
    for person in ("ANNA", "BEN", "CARL"):
        (tmp_path / "photos" / person).mkdir(parents=True)
        for number in range(9):
            (tmp_path / f"photos/{person}/{number}.jpg").symlink_to(tmp_path / "1.jpg")
    source = f"ingestion.sources=[{{kind: folder, path: {tmp_path}/photos}}]"
    settings = ("ingestion.held_out=0", "training.batch_size=2", "training.warmup_steps=0")
    run_gif("run", "--preset", "demo", *(part for each in (source, *settings) for part in ("--set", each)), "--dry-run")
    assert sum("27 links lead out of" in note for note in notes) == 1


def test_a_vector_is_shortened_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    sql._print_table(pa.table({"vector": [[0.123456] * 512], "code": [[1, 2, 3]]}))
    printed = " ".join(capsys.readouterr().out.split())
    assert "[0.1235, 0.1235, 0.1235, 0.1235, … 512 values]" in printed
    assert "[1, 2, 3]" in printed


def test_a_pipe_given_as_a_configuration_is_no_file(run_gif: Gif, tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "run.yaml")
    assert "neither a file nor a preset" in run_gif("config", "validate", str(tmp_path / "run.yaml"), code=2)


def test_help_and_version_import_none_of_the_libraries_that_take_seconds() -> None:
    heavy = ("numpy", "pydantic", "pyarrow", "torch", "prefect", "duckdb", "cv2", "fsspec")
    for option in ("--help", "-h", "--version"):
        script = (
            f"import sys; sys.argv = ['gif', '{option}']\nfrom flows.cli import main\n"
            f"try: main()\nexcept SystemExit: sys.exit(str([name for name in {heavy} if name in sys.modules]))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.stderr.strip() == "[]", option
        assert "gif" in done.stdout


def test_the_help_lists_every_command_with_the_first_line_of_its_own_help() -> None:
    whole = get_command(build_app(*COMMANDS))
    listed = get_command(build_app())
    for name in COMMANDS:
        own, short = (command.commands[name].get_short_help_str(1000) for command in (whole, listed))
        assert short.rstrip(".") == own.split("\n")[0].rstrip("."), name


def test_every_command_prints_with_the_console_that_escapes() -> None:
    modules = Path(sql.__file__).parent.glob("*.py")
    assert [path.name for path in modules if "from rich.console" in path.read_text()] == []


def test_a_terminal_with_bars_shows_milestones_of_a_run_beside_them_only_and_a_log_shows_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milestones, "level", logging.INFO)
    for terminal in (True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        with milestones_printed():
            milestones.info("training: epoch 1 of 6")
            milestones_beside.info("CosFace: epoch 1 of 6")
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1].endswith("CosFace: epoch 1 of 6")
        assert len(lines) == (1 if terminal else 2)
