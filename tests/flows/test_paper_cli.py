"""`gif paper`: one command for each table and figure."""

import re
import shlex
from collections.abc import Callable
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flows import forked
from flows.cli import paper as module
from flows.cli import sweep as sweep_module
from flows.cli.output import Console
from flows.cli.swept import Swept
from gif_core.paper import Grid
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


@pytest.mark.parametrize(
    "command", [("paper", "all"), ("sweep", "--preset", "demo", "--vary", "training.gamma=0,1", "--dry-run")]
)
def test_a_page_in_a_missing_folder_is_refused_before_anything_runs(
    command: tuple[str, ...], run_gif: Gif, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (module, sweep_module):
        monkeypatch.setattr(place, "run_sweep", lambda *_, **__: pytest.fail("a run was started"))
    shown = run_gif(*command, "--out", "missing/page.html", code=2)
    assert "--out missing/page.html: there is no folder missing; make it first (mkdir -p missing)" in shown


def test_the_command_on_the_page_can_be_pasted(tmp_path: Path, run_gif: Gif, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_find_memory", lambda _: 0)
    out, setting = tmp_path / "page.html", "training.layers=[1, 2]"
    run_gif("paper", "figure1c", "--device", "cuda", "--data", "/my faces", "--set", setting, "--out", str(out))
    (printed,) = re.findall(r"gif paper figure1c [^<]*", unescape(out.read_text()))
    words = ["gif", "paper", "figure1c", "--scale", "full", "--seeds", "0", "--device", "cuda"]
    assert shlex.split(printed) == [*words, "--set", "data=/my faces", "--set", setting]


def test_a_measurement_may_use_no_more_than_the_gpu_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gif_core.planning.available_memory", lambda: 10**9)
    assert module._find_memory("cpu") == 7 * 10**8
    monkeypatch.setattr("gif_core.runtime.pick_device", torch.device)
    monkeypatch.setattr("gif_core.runtime.device_memory", {torch.device("cuda:1"): 5 * 10**8}.__getitem__)
    assert module._find_memory("cuda:1") == 5 * 10**8


def test_mistakes_are_said_in_a_sentence(run_gif: Gif) -> None:
    assert "--device is cpu, cuda or cuda:N, not 'gpu'" in run_gif("paper", "figure1c", "--device", "gpu", code=2)
    assert "unknown experiment 'table9'" in run_gif("paper", "table9", code=2)
    assert "suit the demo's network and optimizer: give --scale demo" in run_gif("paper", "heads", "--dry-run", code=2)
    assert "--scale is full or demo" in run_gif("paper", "table1", "--scale", "tiny", code=2)


def test_a_table_wider_than_the_terminal_is_shown_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("Method", *(f"benchmark {place}" for place in range(9)))
    grid = Grid("Scores", columns, (("GIF, this project's defaults", *map(str, range(9))),))
    module._show_grid(Console(width=80), grid)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line for line in lines if line.startswith("│")]
    assert len(shown) == 3
    assert all("GIF, this project's defaults" in line for line in shown), "every part says whose scores it has"
    assert "".join("".join(line.split("│")[2:]).replace(" ", "") for line in shown) == "012345678"


def test_a_run_that_fails_is_named_by_its_error_and_not_by_what_follows_it() -> None:
    assert forked._find_error("error: the disk is full\nwarning: something else\n") == "the disk is full"
    assert forked._find_error("Killed") == "Killed"
    assert forked._find_error("") == "without a word"
