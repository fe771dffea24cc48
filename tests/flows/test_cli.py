"""The command line as identities use it: the real program, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from schemas.loading import load_config
from schemas.stages import STAGES

GIF = str(Path(sys.executable).with_name("gif"))


@pytest.fixture(scope="module")
def gif(tmp_path_factory: pytest.TempPathFactory, prefect_api: str, tiny_settings: dict[str, object]):
    """Run `gif …` in an empty folder with a small configuration `run.yaml` and a store of its own."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "run.yaml").write_text(yaml.safe_dump(tiny_settings))
    environment = {
        **os.environ,
        "GIF_STORE": str(folder / "store"),
        "PREFECT_API_URL": prefect_api,
        "COLUMNS": "200",
    }

    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [GIF, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def first_run(gif) -> str:
    """What one complete run prints."""
    printed = gif("run", "--config", "run.yaml")
    assert "completed" in printed
    return printed


@pytest.fixture(scope="module")
def after_a_run(gif, first_run: str):
    """The command line after one complete run."""
    return gif


def test_without_a_terminal_every_stage_has_a_line_when_it_begins_and_ends_and_every_epoch(
    first_run: str, tiny_settings: dict[str, object]
) -> None:
    lines = [line.partition(" ")[2] for line in first_run.partition("run ")[0].splitlines()]
    assert [line for line in lines if line.endswith(" begins")] == [f"{stage} begins" for stage in STAGES]
    assert [line.partition(":")[0] for line in lines if ": computed in " in line] == list(STAGES)
    epochs = load_config(tiny_settings).training.epochs
    begun, ended = (lines.index(each) for each in ("training begins", "evaluation begins"))
    assert [line.split("  ")[0] for line in lines[begun + 1 : ended - 1]] == [
        f"training: epoch {epoch} of {epochs}" for epoch in range(1, epochs + 1)
    ]


def test_help_teaches_the_commands(gif) -> None:
    overview = gif("--help")
    assert all(command in overview for command in ("demo", "run", "sql", "compare", "artifacts", "runs", "config"))
    assert "--set tokenization.length=4" in gif("run", "--help")
    assert "SELECT c1, count(*)" in gif("sql", "--help")


def test_a_dry_run_says_what_would_run_and_runs_nothing(gif, tmp_path: Path) -> None:
    printed = gif("run", "--config", "run.yaml", "--set", f"store={tmp_path}", "--dry-run")
    assert printed.count("nothing stored yet") == 7
    assert list(tmp_path.iterdir()) == []


def test_a_run_ends_with_a_table_of_stages_scores_and_the_reports_path(after_a_run) -> None:
    printed = after_a_run("run", "--config", "run.yaml")
    assert printed.count("│ reused") == 7
    assert "raw pixels" in printed
    assert "the trained model" in printed
    report = Path(printed.split("report: ")[1].strip())
    assert report.read_text().startswith("<!doctype html>")


def test_a_dry_run_names_the_setting_that_made_the_difference(after_a_run) -> None:
    printed = after_a_run("run", "--config", "run.yaml", "--set", "tokenization.length=3", "--dry-run")
    assert "tokenization.length: 2 → 3" in printed
    assert "input tokenization changed" in printed


def test_sql_answers_in_three_formats(after_a_run) -> None:
    text = "SELECT c1, count(*) AS n FROM codes GROUP BY c1 ORDER BY c1"
    rows = json.loads(after_a_run("sql", "--format", "json", text))
    assert [row["c1"] for row in rows] == sorted({row["c1"] for row in rows})
    lines = after_a_run("sql", "--format", "csv", text).splitlines()
    assert lines == ["c1,n", *(f"{row['c1']},{row['n']}" for row in rows)]
    assert "c1" in after_a_run("sql", text)


def test_sql_without_a_query_shows_the_tables(after_a_run) -> None:
    printed = after_a_run("sql")
    assert all(name in printed for name in ("codes", "nodes", "identities", "vectors", "metrics", "artifacts"))


def test_a_wrong_query_shows_duckdbs_message(after_a_run) -> None:
    assert 'Referenced column "c9" not found' in after_a_run("sql", "SELECT c9 FROM codes", code=2)


def test_faces_are_shown_on_a_sheet(after_a_run, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.jpg"
    assert "2 of" in after_a_run("faces", "show", "--identities", "0,3", "--out", str(sheet))
    assert sheet.read_bytes().startswith(b"\xff\xd8")
    assert "identity 99 has no faces" in after_a_run("faces", "show", "--identities", "99", code=2)


def test_artifacts_are_listed_shown_checked_and_cleaned_up(after_a_run) -> None:
    assert "tokenization/" in after_a_run("artifacts", "ls")
    assert "codes.duckdb" in after_a_run("artifacts", "show", "tokenization@latest")
    assert "0 damaged" in after_a_run("artifacts", "check")
    assert "0 leftovers" in after_a_run("artifacts", "gc")
    assert "would be removed: --yes removes them" in after_a_run("artifacts", "prune", "--keep-runs", "1")


def test_runs_are_listed_and_shown_with_their_settings(after_a_run) -> None:
    assert "completed" in after_a_run("runs", "ls")
    assert "tokenization" in after_a_run("runs", "show")
    assert yaml.safe_load(after_a_run("runs", "show", "--config"))["training"]["batch_size"] == 16


def test_runs_are_compared_in_the_terminal_and_on_a_page(after_a_run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run_id = after_a_run("runs", "show").split("run ")[1].split(":")[0]
    printed = after_a_run("compare", run_id, "training@latest", "--out", str(page))
    assert "Held out: Accuracy" in printed
    assert "Parameters of the head" in printed
    assert "training@latest" in page.read_text()


def test_a_damaged_file_is_found_by_check_and_mended_by_refresh(after_a_run) -> None:
    shown = after_a_run("artifacts", "show", "reporting@latest")
    folder = Path(shown.split("file://")[1].split()[0])
    report = next(folder.glob("*/report.html"))
    report.write_bytes(report.read_bytes().replace(b"a", b"b", 1))
    assert "1 damaged" in after_a_run("artifacts", "check", code=1)
    after_a_run("run", "--config", "run.yaml", "--refresh", "reporting")
    assert "0 damaged" in after_a_run("artifacts", "check")


def test_config_is_shown_checked_and_documented(gif) -> None:
    shown = yaml.safe_load(gif("config", "show", "demo", "--set", "seed=5"))
    assert (shown["seed"], shown["preset"]) == (5, "demo")
    assert "valid" in gif("config", "validate", "run.yaml")
    assert "tokenization" in json.loads(gif("config", "schema"))["properties"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--preset", "demo", "--set", "tokenization.lenght=4", "--dry-run"], "did you mean 'length'?"),
        (["run", "--preset", "demo", "--only", "tokenisation"], "there are: ingestion, embedding"),
        (["run", "--config", "nowhere.yaml"], "neither a file nor a preset"),
        (["run", "--config", "run.yaml", "--preset", "demo"], "not both"),
        (["run", "--config", "run.yaml", "--only", "training", "--from", "embedding", "--dry-run"], "not both"),
        (["run", "--config", "run.yaml", "--seed", "1"], "No such option"),
        (["artifacts", "show", "nothing"], "names 0 artifacts"),
        (["compare", "1999"], "name at least two runs"),
        (["compare", "1999", "2000"], "there is no model '1999'"),
        (["sql", "--run", "1999", "SELECT 1"], "there is no run"),
        (
            ["run", "--preset", "demo", "--set", "ingestion.sources=[{kind: folder, path: nowhere}]", "--dry-run"],
            "there is no folder nowhere",
        ),
    ],
)
def test_a_mistake_is_told_in_a_sentence_without_a_traceback(gif, arguments: list[str], words: str) -> None:
    assert words in gif(*arguments, code=2)
