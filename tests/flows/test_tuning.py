"""`gif sweep --trials`: every variant is tuned alike, on identities that its runs do not verify."""

import json
import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import forked
from flows.cli import server, sweep_runs, tuning
from flows.cli.output import Console
from flows.cli.swept import Given, Swept
from flows.cli.tuning import describe_trials, run_tuned
from flows.forked import run_forked, watched_pipe
from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.runtime import MARK, ending_by_signal
from gif_core.runtime.process_trees import find_process_tree
from gif_core.sweeps import expand, read_draw
from schemas.errors import GifError
from tests.conftest import wait_until
from tests.flows.stored import store_everything

Gif = Callable[..., str]
Process = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]
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


@pytest.mark.parametrize(
    ("vary", "shares"),
    [
        ("ingestion.held_out=0.3", (0.3, 0.6)),
        ("ingestion={held_out: 0.3}", (0.3, 0.6)),
        ("ingestion.left_out=0.4", (0.5, 0.6)),
        ("evaluation.sets=[{kind: synthetic_bin}]", (0.1, 0.2)),
    ],
)
def test_trials_leave_out_what_the_variant_itself_verifies_and_verify_held_out_pairs_whatever_it_evaluates(
    vary: str, shares: tuple[float, float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trials: list[Any] = []

    def sweep(given: Given, variants: list[Any], *_: Any, **__: Any) -> Swept:
        trials.extend(given.settings(variant.with_seed(0)) for variant in variants)
        swept = Swept(variants, [{} for _ in variants])
        swept.__dict__.update(runs=[{0: SimpleNamespace(scores={})} for _ in variants])
        return swept

    monkeypatch.setattr(tuning, "run_sweep", sweep)
    given = Given(None, "demo", ("ingestion.held_out=0.1",))
    run_tuned(given, expand([vary]), DRAWS, 2, "0", jobs=1, dry_run=False)
    assert [each.ingestion.shares for each in trials] == [pytest.approx(shares)] * 2
    assert {each.title for trial in trials for each in trial.evaluation.sets} == {"held_out"}
    assert "no trial has scores (failed, failed)" in capsys.readouterr().err
    run_tuned(given, expand([vary]), DRAWS, 2, "0", jobs=1, dry_run=True)
    assert "its runs follow, with the values of the best" in capsys.readouterr().err


def test_more_than_half_cannot_be_held_out_with_trials() -> None:
    given = Given(None, "demo", ("ingestion.held_out=0.5",))
    with pytest.raises(GifError, match=r"ingestion\.held_out=0\.5 leaves none to train on, lower it"):
        run_tuned(given, expand(["training.gamma=1,3"]), DRAWS, 1, "0", jobs=1, dry_run=True)


def test_trials_and_draws_need_each_other(run_gif: Gif) -> None:
    sweep = ("sweep", "--preset", "demo", "--vary", "training.gamma=0,1", "--dry-run")
    assert "--trials and --draw need each other" in run_gif(*sweep, "--trials", "3", code=2)
    assert "--trials and --draw need each other" in run_gif(*sweep, "--draw", "training.margin=0:1", code=2)
    assert "--vary gives its values" in run_gif(*sweep, "--trials", "3", "--draw", "training.gamma=0:1", code=2)
    planned = run_gif(*sweep, "--trials", "2", "--draw", "training.margin=0:1")
    assert planned.count("trial 1") == planned.count("trial 2") == 2


def test_a_run_whose_scores_are_stored_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Given(None, "demo", ("ingestion.sources.0.identities=60",))
    stored, missing = given.settings(["seed=1"]), given.settings(["seed=2"])
    store_everything(stored)
    started: list[list[str]] = []
    monkeypatch.setattr(sweep_runs, "_find_server", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr(sweep_runs, "run_forked", lambda _, arguments, **__: started.append(arguments))
    assert sweep_runs.run_here([("one", stored, ["1"]), ("two", missing, ["2"])], 1) == 0
    assert started == [["2"]]


def test_a_run_that_lacks_its_data_fails_alone(monkeypatch: pytest.MonkeyPatch, run_gif: Gif) -> None:
    given = Given(None, "demo", ("ingestion.sources.0.identities=60",))
    source = "ingestion.sources=[{kind: folder, path: nowhere}]"
    lacking, other = given.settings([source]), given.settings([])
    started: list[list[str]] = []
    monkeypatch.setattr(sweep_runs, "_find_server", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr(sweep_runs, "run_forked", lambda _, arguments, **__: started.append(arguments))
    assert sweep_runs.run_here([("one", lacking, ["1"]), ("two", other, ["2"])], 1) == 1
    assert started == [["2"]]
    swept = Swept(expand(["training.gamma=1,3"]), [{0: lacking}, {0: other}])
    assert swept.evaluations == [{}, {}]
    planned = run_gif("sweep", "--preset", "demo", "--set", source, "--vary", "training.gamma=1,3", "--dry-run")
    assert planned.count("cannot run, see below") == 2


def test_the_sweeps_of_one_command_share_a_server_and_the_process_that_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = "http://127.0.0.1:1/api"
    temporary = SimpleNamespace(running=False, api_url=api, server_process=SimpleNamespace(pid=1))
    temporary.start = lambda **_: setattr(temporary, "running", True)
    watched: list[int] = []
    module = SimpleNamespace(SubprocessASGIServer=lambda: temporary)
    monkeypatch.setitem(sys.modules, "prefect.server.api.server", module)
    monkeypatch.setattr(server, "_end_with_this_process", watched.append)
    with temporary_settings({PREFECT_API_URL: None}):
        assert [server.ensure_server(Console()) for _ in range(3)] == [api] * 3
    assert watched == [1]


def test_runs_that_end_while_others_start_keep_their_exit_codes() -> None:
    processes = [multiprocessing.get_context("forkserver").Process(target=sys.exit, args=(n % 2,)) for n in range(100)]

    def run(process: Any) -> int | None:
        forked.start(process)
        return forked.finish(process)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, processes)) == [0, 1] * 50


def test_a_run_that_fails_in_its_process_is_named_by_its_error() -> None:
    arguments = ["--preset", "demo", "--set", "training.nothing=1"]
    with watched_pipe() as watched:
        error = run_forked(sweep_runs._call, arguments, server="http://nobody/api", watched=watched)
    assert "no such setting" in str(error)


@pytest.mark.parametrize("sign", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_sweep_that_is_ended_leaves_no_process_and_no_file_and_goes_on_later(
    sign: signal.Signals, tmp_path: Path, prefect_api: str, tiny_settings: dict[str, Any], running_process: Process
) -> None:
    (tmp_path / "tmp").mkdir()
    config = {**tiny_settings, "store": str(tmp_path / "store"), "training": {"epochs": 500, "warmup_steps": 0}}
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    sweep = [sys.executable, "-m", "flows.cli", "sweep", "-c", str(tmp_path / "run.yaml")]
    sweep += ["--vary", "training.gamma=1,3,5", "--jobs", "2"]
    family, store, log = tmp_path.name, ArtifactStore(str(tmp_path / "store")), tmp_path / "log"
    environment = {"PREFECT_API_URL": prefect_api, MARK: family, "TMPDIR": str(tmp_path / "tmp")}
    with running_process(sweep, log, **environment) as process:
        wait_until(
            lambda: any(run.current == "training" for run in list_runs(store)), seconds=300, what="training", log=log
        )
        process.send_signal(sign)
        process.wait(100)
        wait_until(lambda: not find_process_tree(family), seconds=60, what="the end of its runs", log=log)
    assert len(list_runs(store)) <= 2, "no other run was begun"
    if sign == signal.SIGTERM:
        assert process.returncode == 130
        assert "the same command continues" in log.read_text()
    assert [path for path in (tmp_path / "tmp").iterdir() if path.is_file()] == []


def test_a_sweep_under_nohup_goes_on_when_the_terminal_is_closed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_by_signal():
            signal.raise_signal(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with pytest.raises(KeyboardInterrupt), ending_by_signal():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
