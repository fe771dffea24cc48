from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gif_core.reporting import conclude, load_run
from gif_core.reporting.scored_runs import ScoredRun
from gif_core.runtime.formatting import parse_size

MakeRun = Callable[..., Any]


@pytest.fixture(scope="module")
def runs(small_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("store")
    return {head: small_run(folder, head=head) for head in ("gif", "arcface", "cosface")}


def load(runs: dict[str, Any], *heads: str) -> list[ScoredRun]:
    return [load_run(runs[head].store, runs[head].inputs["evaluation"].ref.key) for head in heads]


def test_three_lines_name_the_accuracies_the_gain_and_the_cost_of_both_heads(runs: dict[str, Any]) -> None:
    first, second, third = conclude(runs["gif"].config, load(runs, "gif", "arcface", "cosface"))
    assert first == (
        "Verification of unseen identities: raw pixels 61.25%, the encoder 70.00%, CosFace 98.77%, GIF 98.77%."
    )
    assert "the encoder that its codes come from: +28.8 points" in second
    assert "same network, images and steps: +0.0 points" in second
    assert "for CosFace, " in third
    assert "code vectors (64.0 MB) can stay in a file" in third


def test_a_million_rows_cost_far_more_than_codes(runs: dict[str, Any]) -> None:
    line = conclude(runs["gif"].config, load(runs, "gif", "cosface"))[2]
    rows, tokens = (parse_size(" ".join(part.split()[-2:]), "memory") for part in line.split(" for ")[:2])
    assert rows > 100 * tokens


def test_there_are_no_lines_without_a_cosface_run_of_the_same_budget(
    runs: dict[str, Any], small_run: MakeRun, tmp_path: Path
) -> None:
    config = runs["gif"].config
    assert conclude(config, load(runs, "gif", "arcface")) == []
    assert conclude(config, load(runs, "cosface", "gif")) == []
    assert conclude(config, []) == []
    other = small_run(tmp_path, head="cosface", seed=5)
    assert conclude(config, [*load(runs, "gif"), load_run(other.store, other.inputs["evaluation"].ref.key)]) == []


def test_the_report_begins_with_the_lines(runs: dict[str, Any], tmp_path: Path) -> None:
    shown = load(runs, "gif", "cosface")
    page = runs["gif"].report(tmp_path / "report.html", shown)
    for line in conclude(runs["gif"].config, shown):
        assert f"<li>{line}</li>" in page
    assert "<li>" not in runs["gif"].report(tmp_path / "alone.html").partition("<script>")[0]
