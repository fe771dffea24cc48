"""`gif sweep --trials`: every variant is tuned alike, on identities that its runs do not verify."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.cli import sweep_runs, tuning
from flows.cli.swept import Given, Swept
from flows.cli.tuning import describe_trials, run_tuned
from gif_core.sweeps import expand, read_draw
from schemas.errors import GifError
from tests.flows.stored import store_everything

Gif = Callable[..., str]
DRAWS = [read_draw("training.learning_rate=log:0.001:0.1")]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))


def test_each_variant_runs_with_the_values_that_were_best_on_development_identities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs are not started: the second trial of the first variant has the best scores, the first of the second."""
    asked: list[tuple[Any, ...]] = []
    accuracies = iter([0.7, 0.9, None, 0.8, 0.6, None])

    def sweep(given: Given, variants: list[Any], seeds: str, **_: Any) -> Swept:
        settings = [given.settings(variant.with_seed(0)) for variant in variants]
        asked.append((seeds, settings))
        swept = Swept(variants, [{} for _ in variants])
        if len(variants) == 3:
            found = [next(accuracies) for _ in variants]
            runs = [{0: SimpleNamespace(scores={"held_out": {"accuracy": each}})} if each else {} for each in found]
            swept.__dict__.update(runs=runs)
        return swept

    monkeypatch.setattr(tuning, "run_sweep", sweep)
    given = Given(None, "demo", ("ingestion.held_out=0.25",))
    swept, tried = run_tuned(given, expand(["training.head=cosface,dcq"]), DRAWS, 3, "0,1", jobs=1, dry_run=False)
    assert [seeds for seeds, _ in asked] == ["0", "0,1", "0", "0,1"], "trials have the first seed alone"
    (_, trials), (_, first), (_, others), (_, second) = asked
    rates = [each.training.learning_rate for each in trials]
    assert rates == [each.training.learning_rate for each in others], "all variants try the same values"
    assert len(set(rates)) == 3
    assert (first[0].training.learning_rate, second[0].training.learning_rate) == (rates[1], rates[0])
    assert {each.ingestion.shares for each in trials} == {(0.25, 0.5)}, "the runs' test identities are left out"
    assert first[0].ingestion.shares == (0, 0.25)
    assert {each.title for trial in trials for each in trial.evaluation.sets} == {"held_out"}
    assert [variant.name for variant in swept.variants] == ["cosface", "dcq"]
    assert "90.00 %, failed, number 2 is best: training.learning_rate=" in describe_trials(tried[0])


def test_trials_need_identities_that_are_held_out() -> None:
    given = Given(None, "demo", ("ingestion.held_out=0",))
    with pytest.raises(GifError, match=r"set ingestion\.held_out above 0"):
        run_tuned(given, expand(["training.gamma=1,3"]), DRAWS, 1, "0", jobs=1, dry_run=True)


def test_trials_and_draws_need_each_other(run_gif: Gif) -> None:
    sweep = ("sweep", "--preset", "demo", "--vary", "training.gamma=0,1", "--dry-run")
    assert "--trials and --draw need each other" in run_gif(*sweep, "--trials", "3", code=2)
    assert "--trials and --draw need each other" in run_gif(*sweep, "--draw", "training.margin=0:1", code=2)
    planned = run_gif(*sweep, "--trials", "2", "--draw", "training.margin=0:1")
    assert planned.count("trial 1") == planned.count("trial 2") == 2


def test_a_run_whose_scores_are_stored_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Given(None, "demo", ("ingestion.sources.0.identities=60",))
    stored, missing = given.settings(["seed=1"]), given.settings(["seed=2"])
    store_everything(stored)
    started: list[list[str]] = []
    monkeypatch.setattr(sweep_runs, "_find_server", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr(sweep_runs, "_run", lambda arguments, server: started.append(arguments))
    assert sweep_runs.run_here([("one", stored, ["1"]), ("two", missing, ["2"])], 1) == 0
    assert started == [["2"]]


def test_a_run_that_lacks_its_data_fails_alone(monkeypatch: pytest.MonkeyPatch, run_gif: Gif) -> None:
    given = Given(None, "demo", ("ingestion.sources.0.identities=60",))
    source = "ingestion.sources=[{kind: folder, path: nowhere}]"
    lacking, other = given.settings([source]), given.settings([])
    started: list[list[str]] = []
    monkeypatch.setattr(sweep_runs, "_find_server", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr(sweep_runs, "_run", lambda arguments, server: started.append(arguments))
    assert sweep_runs.run_here([("one", lacking, ["1"]), ("two", other, ["2"])], 1) == 1
    assert started == [["2"]]
    swept = Swept(expand(["training.gamma=1,3"]), [{0: lacking}, {0: other}])
    assert swept.evaluations == [{}, {}]
    planned = run_gif("sweep", "--preset", "demo", "--set", source, "--vary", "training.gamma=1,3", "--dry-run")
    assert planned.count("cannot run, see below") == 2


def test_a_run_that_fails_in_its_process_is_named_by_its_error() -> None:
    assert "no such setting" in str(
        sweep_runs._run(["--preset", "demo", "--set", "training.nothing=1"], "http://nobody/api")
    )
