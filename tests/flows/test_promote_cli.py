"""`gif promote`, `gif rollback` and `gif champion`, and the history in `gif sql`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gif_core.artifacts import Artifact, ArtifactStore, MetricsWriter, begin_run, read_history, read_tag, save_run
from gif_core.retraining import record_verdict
from schemas.artifacts import MadeFrom, StageRecord
from schemas.loading import load_config
from schemas.retraining import Compared

Gif = Callable[..., str]
A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))
    store = ArtifactStore(str(tmp_path / "store"))
    for key in (A, B, C):
        publish(store, key)
    return store


def publish(store: ArtifactStore, key: str) -> Artifact:
    inputs = {"ingestion": MadeFrom(key=key, digest=key)}
    with store.draft(store.ref("training", key), {}, inputs) as draft:  # type: ignore[arg-type]
        with MetricsWriter(draft.folder / "metrics.parquet", "training") as metrics:
            metrics.add(1, {"loss": float(int(key[0], 16))})
        return store.open(store.publish(draft))


def add_run(store: ArtifactStore, key: str) -> str:
    record = begin_run(store, load_config({"preset": "demo"}))
    stages = {"training": StageRecord(key=key, action="computed", seconds=1)}
    return save_run(store, record, state="completed", stages=stages).run_id


def tagged(store: ArtifactStore) -> str:
    tag = read_tag(store, "training", "champion")
    assert tag is not None
    return tag.ref.key


def test_a_run_or_a_model_is_promoted_by_hand_with_its_reason(store: ArtifactStore, run_gif: Gif) -> None:
    run = add_run(store, A)
    assert (
        run_gif("promote", "--model", run, "--because", "first model")
        == f"training/{A[:12]} is the champion now (decision 1)\n"
    )
    run_gif("promote", "--model", f"training/{B[:5]}")
    assert tagged(store) == B
    first, second = read_history(store)
    assert (first.kind, first.because, first.run_id, first.ingestion) == ("by_hand", "first model", run, A)
    assert (second.before, second.champion, second.because) == (A, B, "by hand")
    assert "is the champion already" in run_gif("promote", "--model", "training@champion", code=2)


def test_rollback_goes_back_to_the_champion_before_and_to_one_that_is_named(store: ArtifactStore, run_gif: Gif) -> None:
    for key in (A, B, C):
        run_gif("promote", "--model", f"training/{key}")
    printed = run_gif("rollback", "--because", "false matches")
    assert printed == f"training/{B[:12]} is the champion again (decision 4)\n"
    assert tagged(store) == B
    run_gif("rollback", "--model", f"training/{A[:8]}")
    assert tagged(store) == A
    assert "no champion before the one in use" in run_gif("rollback", code=2)


def test_the_history_is_shown_the_newest_first(store: ArtifactStore, run_gif: Gif) -> None:
    assert "there is no champion" in run_gif("champion", code=2)
    run_gif("promote", "--model", f"training/{A}", "--because", "the [first] one")
    run_gif("promote", "--model", f"training/{B}")
    printed = run_gif("champion")
    assert printed.startswith(f"training/{B[:12]} is the champion; use it with --model champion")
    assert "the [first] one" in printed
    assert printed.index("by hand") < printed.index("the [first] one")


def test_what_is_not_a_model_is_told(store: ArtifactStore, run_gif: Gif) -> None:
    assert "names 0 artifacts" in run_gif("promote", "--model", "training/ffff", code=2)
    assert "there is no tag" in run_gif("promote", "--model", "evaluation@latest", code=2)
    assert "was never champion" in run_gif("rollback", "--model", f"training/{A}", code=2)


def test_decisions_can_be_asked_with_sql(store: ArtifactStore, run_gif: Gif) -> None:
    add_run(store, C)
    run_gif("promote", "--model", f"training/{A}")
    row = Compared(set="LFW", metric="accuracy", champion=0.9, challenger=0.95, low=0.01, high=0.09)
    record_verdict(store, "champion", champion=A, challenger=B, promoted=True, because="better", metrics=(row,))
    asked = "SELECT number, kind, champion, because FROM decisions ORDER BY number"
    assert json.loads(run_gif("sql", asked, "--format", "json")) == [
        {"number": 1, "kind": "by_hand", "champion": A, "because": "by hand"},
        {"number": 2, "kind": "promoted", "champion": B, "because": "better"},
    ]
    asked = "SELECT f.metric, f.challenger FROM (SELECT unnest(metrics) AS f FROM decisions)"
    assert json.loads(run_gif("sql", asked, "--format", "json")) == [{"metric": "accuracy", "challenger": 0.95}]


def test_a_policy_that_is_wrong_is_told_with_the_field(store: ArtifactStore, run_gif: Gif, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("codes: {fullest: 2}\ntraning: {}\n")
    printed = run_gif("retrain", "--policy", str(tmp_path / "policy.yaml"), code=2)
    assert "codes.fullest = 2" in printed
    assert "traning" in printed
