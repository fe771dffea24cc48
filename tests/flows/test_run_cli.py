"""`gif run` before and without the flow: what is asked for, what is checked, and a run that is stored already."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli import run as run_command
from flows.cli.environment import names_server, share_threads
from flows.cli.tables import headline
from gif_core.artifacts import list_runs, read_tag
from schemas.artifacts import RunRecord
from schemas.loading import load_config
from schemas.run import RunConfig
from schemas.stages import STAGES
from tests.flows.stored import store_everything

Gif = Callable[..., str]
SMALL = ("--preset", "demo", "--set", "ingestion.sources.0.identities=60")


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)


def test_gif_run_alone_asks_what_to_run(run_gif: Gif) -> None:
    printed = run_gif("run", code=2)
    assert "say what to run: --config run.yaml, or --preset NAME (demo, casia" in printed
    assert "'gif demo' runs the demonstration" in printed
    assert "paper/" not in printed, "a few lines, not all that there are"


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_missing_folder_is_said_before_prefect_is_imported(
    run_gif: Gif, monkeypatch: pytest.MonkeyPatch, dry: list[str]
) -> None:
    monkeypatch.setattr(run_command, "_load_flow", lambda *_, **__: pytest.fail("the flow was loaded"))
    wrong = "ingestion.sources=[{kind: folder, path: no/photos}]"
    printed = run_gif("run", "--preset", "demo", "--set", wrong, *dry, code=2)
    assert "there is no folder no/photos" in printed
    assert "Error" not in printed


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_stage_alone_whose_inputs_nobody_has_made_is_refused_before_prefect_is_imported(
    run_gif: Gif, monkeypatch: pytest.MonkeyPatch, dry: list[str]
) -> None:
    monkeypatch.setattr(run_command, "_load_flow", lambda *_, **__: pytest.fail("the flow was loaded"))
    printed = run_gif("run", "--preset", "demo", "--only", "tokenization", *dry, code=2)
    assert "tokenization needs ingestion, separation, which this configuration has not made yet" in printed
    assert "--from ingestion" in printed


def test_a_run_of_which_all_is_stored_starts_no_server_and_is_recorded(
    run_gif: Gif, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_everything(load_config("demo", ["ingestion.sources.0.identities=60"]))
    monkeypatch.setattr(run_command, "_load_flow", lambda *_, **__: pytest.fail("the flow was loaded"))
    printed = run_gif("run", *SMALL)
    assert "completed" in printed
    (record,) = list_runs(store)
    assert record.state == "completed"
    assert {stage: done.action for stage, done in record.stages.items()} == dict.fromkeys(STAGES, "reused")
    for stage in STAGES:
        tag = read_tag(store, stage, "latest")
        assert tag is not None
        assert tag.ref.key == record.stages[stage].key


def test_a_stage_that_is_not_stored_or_a_server_that_is_set_calls_the_flow(
    run_gif: Gif, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    monkeypatch.setattr(run_command, "_run_flow", lambda *_, **options: called.append(options))
    store = store_everything(load_config("demo", ["ingestion.sources.0.identities=60"]))
    run_gif("run", *SMALL, "--set", "tokenization.length=4")
    run_gif("run", *SMALL, "--refresh", "reporting")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    run_gif("run", *SMALL)
    assert len(called) == 3
    assert list_runs(store) == []


def test_the_demo_is_reused_only_when_the_classifier_beside_it_is_stored(
    run_gif: Gif, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[RunConfig, RunConfig]] = []

    def flow(*configs: RunConfig) -> RunRecord:
        called.append(configs)
        return list_runs(store)[0]

    monkeypatch.setattr(run_command, "_load_flow", lambda *_, **__: flow)
    demo, rival = load_config("demo"), load_config("demo", run_command.RIVAL)
    store = store_everything(demo)
    run_gif("run", "--preset", "demo")
    run_gif("demo")
    assert called == [(demo, rival)]
    store_everything(rival, STAGES[:-1])
    store_everything(demo)
    assert "completed" in run_gif("demo")
    assert len(called) == 1


@pytest.mark.parametrize(("cores", "share"), [(None, "1"), (1, "1"), (2, "1"), (9, "4")])
def test_each_of_two_models_gets_half_of_the_processors_unless_the_user_has_chosen(
    cores: int | None, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    environment: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environment)
    share_threads(2)
    share_threads(1)
    assert environment == {"OMP_NUM_THREADS": share}


def test_a_server_in_a_profile_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not names_server()
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect/profiles.toml").write_text('active = "x"\n[profiles.x]\nPREFECT_API_URL = "http://x/api"\n')
    assert names_server()


def test_ctrl_c_says_that_the_same_command_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_command, "_load_flow", lambda *_, **__: interrupt)
    monkeypatch.setattr(sys, "argv", ["gif", "run", *SMALL])
    from flows.cli import main

    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert "the same command continues from there" in capsys.readouterr().err


def test_a_dry_run_says_which_sets_it_would_score_and_which_files_are_missing(run_gif: Gif, tmp_path: Path) -> None:
    (tmp_path / "faces").mkdir()
    (tmp_path / "faces/lfw.bin").write_bytes(b"x")
    drawn = "ingestion.sources=[{kind: synthetic, identities: 60}]"
    small = ("embedding.model=tiny-clip", "embedding.pretrained=synthetic", "training.batch_size=32", drawn)
    sets = [word for setting in (*small, f"data={tmp_path}/faces") for word in ("--set", setting)]
    printed = " ".join(run_gif("run", "--preset", "ms1mv2", *sets, "--dry-run").split())
    assert "evaluation scores LFW; evaluation leaves out what is not there: CFP-FP" in printed
    assert "faces/IJBC)" in printed.replace(" ", "")


def test_the_summary_of_a_run_fits_80_columns_and_says_what_a_person_wants() -> None:
    metrics = {"parts_computed": 1, "runner": "ThreadPoolTaskRunner", "dimensions": 128, "images": 7169}
    assert headline("embedding", metrics) == "7,169 images → vectors of 128 numbers"
    assert headline("training", {"steps": 2688, "loss": 0.7954}) == "2,688 steps, loss 0.795"
    assert headline("tokenization", {"explained_1_random": 1.0, "length": 3, "vocab_size": 8}) == (
        "codes of 3 tokens, each one of 8"
    )


def test_the_lists_of_runs_and_stages_fit_80_columns(run_gif: Gif, monkeypatch: pytest.MonkeyPatch) -> None:
    store_everything(load_config("demo", ["ingestion.sources.0.identities=60"]))
    monkeypatch.setenv("COLUMNS", "80")
    shown = run_gif("run", *SMALL), run_gif("runs", "ls"), run_gif("artifacts", "ls")
    for printed in shown:
        table = [line for line in printed.splitlines() if line[:1] in "┃│┏└"]
        assert max(map(len, table)) <= 80
        assert not any("…" in line for line in table), "nothing is cut off"
    report = next(line for line in shown[0].splitlines() if line.startswith("report: "))
    assert report.endswith("report.html"), "the path stays on one line"


def test_a_dry_sweep_shows_that_shared_stages_are_computed_once(run_gif: Gif) -> None:
    vary = ("--vary", "training.head=gif,cosface", "--seeds", "0,1")
    lines = run_gif("sweep", *SMALL, *vary, "--dry-run").splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    computed = " ".join(row[2] for row in rows)
    assert [row[0] for row in rows if row[0]] == ["gif", "gif", "cosface", "cosface"]
    assert [computed.count(stage) for stage in ("ingestion", "embedding", "separation", "training")] == [1, 1, 2, 4]


def test_experiments_of_the_paper_are_listed_and_planned(run_gif: Gif) -> None:
    listed = run_gif("paper", "ls")
    assert "table2" in listed
    assert "structured and atomic codes" in listed
    small = ("--set", "ingestion.sources.0.identities=60")
    planned = run_gif("paper", "figure5d", "--scale", "demo", *small, "--seeds", "0,1", "--dry-run")
    assert planned.count("atomic") == planned.count("structured") == 2
