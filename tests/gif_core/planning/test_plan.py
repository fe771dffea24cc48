from pathlib import Path

import pytest

from gif_core.artifacts import ArtifactStore, list_tags, move_tag
from gif_core.planning import plan_stages, select_stages, stage_settings
from schemas.artifacts import ArtifactRef
from schemas.loading import load_config
from schemas.run import RunConfig
from schemas.stages import INPUTS, STAGES, StageName


def changed(config: RunConfig, override: str) -> RunConfig:
    return load_config(config, [override])


def publish(store: ArtifactStore, ref: ArtifactRef, settings: dict[str, object], content: str) -> None:
    latest = {tag.ref.stage: tag.ref for tag in list_tags(store)}
    inputs = {name: store.open(latest[name]).made_from for name in INPUTS[ref.stage]}
    with store.draft(ref, settings, inputs) as draft:
        (draft.folder / "file").write_text(content)
        draft.metrics |= {"identities": 30} if ref.stage == "ingestion" else {}
        store.publish(draft, replace=True)


def store_all(store: ArtifactStore, config: RunConfig) -> None:
    """Publish an artifact of every stage, as a run would."""
    for stage in STAGES:
        ref = plan_stages(store, config)[stage].ref
        latest = {tag.ref.stage: store.open(tag.ref) for tag in list_tags(store)}
        publish(store, ref, stage_settings(store, config, stage, latest), stage)
        move_tag(store, "latest", ref)


@pytest.fixture
def store(tiny: RunConfig) -> ArtifactStore:
    store = ArtifactStore(tiny.store)
    store_all(store, tiny)
    return store


def downstream(stage: StageName) -> list[StageName]:
    """Every stage that depends on `stage`, directly or not."""
    reached = {stage}
    for name in STAGES:
        if reached.intersection(INPUTS[name]):
            reached.add(name)
    return [name for name in STAGES if name in reached - {stage}]


def to_run(store: ArtifactStore, config: RunConfig) -> list[StageName]:
    return [stage for stage, plan in plan_stages(store, config).items() if plan.action == "run"]


def test_everything_runs_on_an_empty_store(tiny: RunConfig, tmp_path: Path) -> None:
    plans = plan_stages(ArtifactStore(str(tmp_path / "empty")), tiny)
    assert {plan.reason for plan in plans.values()} == {"nothing stored yet"}
    assert [plan.action for plan in plans.values()] == ["run"] * 7


def test_nothing_runs_when_nothing_changed(store: ArtifactStore, tiny: RunConfig) -> None:
    assert to_run(store, tiny) == []


@pytest.mark.parametrize(
    ("override", "stage"),
    [
        ("ingestion.min_samples=2", "ingestion"),
        ("embedding.model=ViT-B-32", "embedding"),
        ("separation.learning_rate=0.2", "separation"),
        ("seed=9", "separation"),
        ("tokenization.length=3", "tokenization"),
        ("training.gamma=2", "training"),
        ("evaluation.flip=false", "evaluation"),
        ("reporting.title=Other", "reporting"),
    ],
)
def test_a_changed_setting_reruns_its_stage_and_what_depends_on_it_and_nothing_else(
    store: ArtifactStore, tiny: RunConfig, override: str, stage: StageName
) -> None:
    assert to_run(store, changed(tiny, override)) == [stage, *downstream(stage)]


@pytest.mark.parametrize("override", ["execution.workers=9", "execution.device=cpu", "execution.encode_batch=7"])
def test_how_a_run_is_executed_changes_nothing(store: ArtifactStore, tiny: RunConfig, override: str) -> None:
    assert to_run(store, changed(tiny, override)) == []


def test_the_reason_names_the_setting_and_then_the_input(store: ArtifactStore, tiny: RunConfig) -> None:
    plans = plan_stages(store, changed(tiny, "tokenization.length=3"))
    assert plans["tokenization"].reason == "tokenization.length: 2 → 3"
    assert plans["training"].reason == "input tokenization changed"
    assert plans["separation"].reason == "stored already"


def test_the_reason_names_a_setting_inside_a_list(store: ArtifactStore, tiny: RunConfig) -> None:
    plans = plan_stages(store, changed(tiny, "ingestion.sources.0.identities=31"))
    assert plans["ingestion"].reason == "ingestion.sources.0.identities: 30 → 31"


def test_a_code_length_that_is_not_resolved_yet_is_no_reason(store: ArtifactStore, tiny: RunConfig) -> None:
    plans = plan_stages(store, changed(tiny, "ingestion.sources.0.identities=31"))
    assert plans["tokenization"].reason == "input ingestion changed; input separation changed"


def test_a_lost_artifact_is_run_again_and_the_reason_says_so(store: ArtifactStore, tiny: RunConfig) -> None:
    store.remove(plan_stages(store, tiny)["tokenization"].ref)
    assert to_run(store, tiny) == ["tokenization"]
    assert "files of it are missing" in plan_stages(store, tiny)["tokenization"].reason


def test_sets_that_cannot_be_reached_matter_only_where_evaluation_runs(store: ArtifactStore, tiny: RunConfig) -> None:
    away = changed(tiny, "evaluation.sets=[{kind: bin, path: nowhere/lfw.bin}]")
    with pytest.raises(FileNotFoundError, match=r"there is no file nowhere/lfw\.bin"):
        plan_stages(store, away)
    plans = plan_stages(store, away, ["reporting"])
    assert plans["evaluation"].ref == plan_stages(store, tiny)["evaluation"].ref, "the last scores stand for it"
    store.remove(plans["evaluation"].ref)
    assert plan_stages(store, away, ["tokenization"])["evaluation"].action == "run"


def test_a_set_counts_by_what_it_holds(store: ArtifactStore, tiny: RunConfig, tmp_path: Path) -> None:
    def plan(name: str, content: bytes) -> str:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "lfw.bin").write_bytes(content)
        return plan_stages(store, changed(tiny, f"evaluation.sets=[{{kind: bin, path: {tmp_path}/{name}/lfw.bin}}]"))[
            "evaluation"
        ].ref.key

    assert plan("here", b"one") == plan("there", b"one") != plan("there", b"two")


def test_refresh_runs_a_stored_stage(store: ArtifactStore, tiny: RunConfig) -> None:
    plans = plan_stages(store, tiny, refresh=["tokenization"])
    assert [stage for stage, plan in plans.items() if plan.action == "run"] == ["tokenization"]


def test_a_new_version_of_a_stages_code_reruns_it(
    store: ArtifactStore, tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from schemas.stages import VERSIONS

    monkeypatch.setitem(VERSIONS, "evaluation", VERSIONS["evaluation"] + 1)
    assert to_run(store, tiny) == ["evaluation", "reporting"]
    assert "code is at version" in plan_stages(store, tiny)["evaluation"].reason


def test_a_new_run_of_the_same_faces_makes_only_the_report_of_an_old_one_again(
    store: ArtifactStore, tiny: RunConfig
) -> None:
    store_all(store, changed(tiny, "training.gamma=2"))
    plan = plan_stages(store, tiny)["reporting"]
    assert to_run(store, tiny) == ["reporting"]
    assert "other runs are there to be shown beside it" in plan.reason
    store_all(store, tiny)
    assert to_run(store, tiny) == []
    assert to_run(store, changed(tiny, "training.gamma=2")) == []


@pytest.mark.parametrize("other", ["evaluation.flip=false", "ingestion.min_samples=2", "reporting.title=Other"])
def test_a_run_that_cannot_be_compared_leaves_the_report_alone(
    store: ArtifactStore, tiny: RunConfig, other: str
) -> None:
    store_all(store, changed(tiny, other))
    assert to_run(store, tiny) == []


def test_a_report_that_is_not_to_compare_stays_when_others_come(store: ArtifactStore, tiny: RunConfig) -> None:
    alone = changed(tiny, "reporting.compare=false")
    store_all(store, alone)
    store_all(store, changed(tiny, "training.gamma=2"))
    assert to_run(store, alone) == []


def test_stages_are_selected_by_only_and_from() -> None:
    assert select_stages(None, None) == STAGES
    assert select_stages("tokenization", None) == ("tokenization",)
    assert select_stages(None, "evaluation") == ("evaluation", "reporting")
    with pytest.raises(ValueError, match="not both"):
        select_stages("training", "evaluation")
    with pytest.raises(ValueError, match="refresh names tokenization, but only training would run"):
        select_stages("training", None, ["tokenization"])


def test_what_was_made_from_an_input_that_came_out_different_runs_again(store: ArtifactStore, tiny: RunConfig) -> None:
    ref = plan_stages(store, tiny)["tokenization"].ref
    publish(store, ref, stage_settings(store, tiny, "tokenization"), "tokenization")
    assert to_run(store, tiny) == []
    publish(store, ref, stage_settings(store, tiny, "tokenization"), "other codes")
    assert to_run(store, tiny) == ["training", "evaluation", "reporting"]
    assert "came out different" in plan_stages(store, tiny)["training"].reason


def test_stages_after_ingestion_run_where_the_sources_cannot_be_reached(tiny: RunConfig, tmp_path: Path) -> None:
    source = f"ingestion.sources=[{{kind: folder, path: {tmp_path}/faces}}]"
    (tmp_path / "faces" / "p").mkdir(parents=True)
    (tmp_path / "faces" / "p" / "1.jpg").write_bytes(b"face")
    config, store = changed(tiny, source), ArtifactStore(tiny.store)
    store_all(store, config)
    (tmp_path / "faces").rename(tmp_path / "away")
    assert [plan.action for plan in plan_stages(store, config, ["training"]).values()] == ["reuse"] * 7
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        plan_stages(store, config, STAGES)
