"""`gif bench` from the terminal."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from gif_core.benchmarking import figures_file, read_figures

runner = CliRunner()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIF_CACHE", str(tmp_path / "cache"))


def test_the_figures_are_shown_drawn_and_kept_and_the_last_line_is_json(tmp_path: Path) -> None:
    image = tmp_path / "step.svg"
    options = ["--device", "cpu", "--seconds", "0.2", "--plot", str(image)]
    done = runner.invoke(app, ["bench", "separate", *options], catch_exceptions=False)
    *lines, last = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("█" in line for line in lines)
    assert json.loads(last)["name"] == "separate"
    assert image.read_text().startswith("<svg")
    assert [result.name for result in read_figures().results.values()] == ["separate"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "there are: train, head, embed"),
        (["train", "--identities", "many"], "--identities must be a whole number"),
        (["all", "--plot", "a.svg"], "--plot draws one benchmark"),
        (["train", "--plot", "a.png"], "ends in .svg"),
    ],
)
def test_a_mistake_is_explained_before_anything_is_measured(arguments: list[str], message: str) -> None:
    done = runner.invoke(app, ["bench", *arguments])
    assert message in str(done.exception)
    assert not figures_file().exists()
