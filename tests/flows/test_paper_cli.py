"""`gif paper`: one command for each table and figure."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.cli import paper as module
from flows.cli import sweep as sweep_module
from flows.cli.sweep import Swept
from schemas.errors import GifError
from schemas.experiments import EXPERIMENTS

Gif = Callable[..., str]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))


def test_every_table_and_figure_is_listed(run_gif: Gif) -> None:
    listed = run_gif("paper", "ls")
    assert all(name in listed for name in EXPERIMENTS)
    assert "14 runs (6 at the demo's size)" in listed


def test_what_needs_no_training_is_shown_at_once_and_on_a_page(tmp_path: Path, run_gif: Gif) -> None:
    shown = run_gif("paper", "figure1a", "--out", str(tmp_path / "page.html"))
    assert "WebFace42M" in shown
    assert "2,059,906" in (tmp_path / "page.html").read_text()


def finished(identities: int, accuracy: float) -> Any:
    settings = {"training.backbone": "iresnet_tiny", "training.epochs": 4, "training.batch_size": 32}
    lineage = {"tokenization": SimpleNamespace(metrics={"identities": identities})}
    scores = {"synthetic-LFW": {"accuracy": accuracy}}
    return SimpleNamespace(scores=scores, settings=settings, lineage=lineage)


def test_scores_are_shown_in_the_papers_form_and_failures_are_not_hidden(
    tmp_path: Path, run_gif: Gif, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are not started: what a sweep finds of them is given, with the last row failed."""

    def sweep(given: Any, variants: list[Any], *_: Any, **__: Any) -> Swept:
        swept = Swept(variants, [{} for _ in variants], failed=1)
        runs = [{0: finished(252, 0.9 + 0.01 * place)} for place in range(len(variants) - 1)]
        swept.__dict__.update(runs=[*runs, {}], evaluations=[{} for _ in variants])
        return swept

    monkeypatch.setattr(module, "run_sweep", sweep)
    out = tmp_path / "page.html"
    shown = run_gif("paper", "table1", "--scale", "demo", "--out", str(out), code=2)
    row, difference = (line.replace("│", " ").split() for line in shown.splitlines() if line.startswith("│ DCQ"))
    assert row[:4] == ["DCQ", "MS1MV2", "R100", "m/10"]
    assert "91.00" in row, "ours"
    assert "99.80" in row, "the paper's"
    assert difference == ["DCQ", "-2.00"], "to GIF, which has 93 %"
    assert "252 identities, iresnet_tiny, 4 epochs" in shown
    assert "compare rows with each other, not with the paper" in shown
    assert "1 runs failed" in shown
    assert "GIF, this project" in out.read_text()


def test_all_goes_on_when_one_of_them_fails(tmp_path: Path, run_gif: Gif, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Swept:
        raise GifError("the disk is full")

    monkeypatch.setattr(module, "run_sweep", fail)
    monkeypatch.setattr("gif_core.paper.show_cost", lambda *_, **__: ([], [], []))
    out = tmp_path / "page.html"
    shown = run_gif("paper", "all", "--scale", "demo", "--out", str(out), code=2)
    assert "table1 failed: the disk is full" in shown
    page = out.read_text()
    assert all(f'id="{name}"' in page for name in ("figure1a", "figure5b", "supplement-separation"))


def test_mistakes_are_said_in_a_sentence(run_gif: Gif) -> None:
    assert "unknown experiment 'table9'" in run_gif("paper", "table9", code=2)
    assert "--scale is full or demo" in run_gif("paper", "table1", "--scale", "tiny", code=2)


def test_a_run_that_fails_is_named_by_its_error_and_not_by_what_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "error: the disk is full\nwarning: something else at the end\n"
    done = SimpleNamespace(returncode=2, stderr=said)
    monkeypatch.setattr("flows.cli.sweep.subprocess.run", lambda *_, **__: done)
    assert sweep_module._run([]) == "the disk is full"
    done.stderr = "Killed"
    assert sweep_module._run([]) == "Killed"
