"""`gif estimate` from the terminal."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from schemas.stages import STAGES

runner = CliRunner()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")


def test_every_stage_has_a_line_of_at_most_80_columns_and_the_price_is_named() -> None:
    done = runner.invoke(app, ["estimate", "--preset", "demo", "--gpus", "0", "--rate", "2"], catch_exceptions=False)
    table, _, rest = done.stdout.partition("ingestion: reference")
    assert all(any(line.split()[:1] == [stage] for line in table.splitlines()) for stage in (*STAGES, "all"))
    assert max(map(len, table.splitlines())) <= 80
    assert "price: " in rest
    assert "run 'gif bench all'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "demo", "--images", "1e-3"], "--images must be a whole number"),
        (["--preset", "demo", "--gpus", "8", "--gpu", "Voodoo"], "its data sheet is not known"),
        ([], "say what to run"),
    ],
)
def test_a_mistake_is_explained(arguments: list[str], message: str) -> None:
    done = runner.invoke(app, ["estimate", *arguments])
    assert message in str(done.exception)
