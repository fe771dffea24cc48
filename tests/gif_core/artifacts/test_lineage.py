"""What artifacts were made from, and which model a name means."""

from pathlib import Path

import pytest

from gif_core.artifacts import (
    Artifact,
    ArtifactMissingError,
    ArtifactStore,
    NotAModelError,
    OldArtifactError,
    begin_run,
    find_evaluation,
    find_model,
    find_scores,
    move_tag,
    run_artifacts,
    save_run,
    with_ancestors,
)
from schemas.artifacts import StageRecord
from schemas.run import RunConfig
from schemas.stages import INPUTS, VERSIONS, StageName

STAGES: tuple[StageName, ...] = ("ingestion", "embedding", "separation", "tokenization", "training", "evaluation")


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store"))


def publish(store: ArtifactStore, stage: StageName, key: str, made: dict[StageName, Artifact]) -> Artifact:
    with store.draft(store.ref(stage, key * 64), {}, {name: made[name].made_from for name in INPUTS[stage]}) as draft:
        (draft.folder / "file").write_text(stage + key)
        return store.open(store.publish(draft))


def publish_all(store: ArtifactStore, first: int = 1) -> dict[StageName, Artifact]:
    made: dict[StageName, Artifact] = {}
    for number, stage in enumerate(STAGES, first):
        made[stage] = publish(store, stage, f"{number:x}", made)
    return made


def add_run(store: ArtifactStore, *artifacts: Artifact) -> str:
    done = {each.ref.stage: StageRecord(key=each.ref.key, action="computed", seconds=1) for each in artifacts}
    return save_run(store, begin_run(store, RunConfig()), state="completed", stages=done).run_id


def test_ancestors_are_all_that_an_artifact_was_made_from_but_what_was_removed(store: ArtifactStore) -> None:
    made = publish_all(store)
    assert with_ancestors(store, made["evaluation"]) == made
    assert list(with_ancestors(store, made["tokenization"])) == ["ingestion", "embedding", "separation", "tokenization"]
    store.remove(made["embedding"].ref)
    assert list(with_ancestors(store, made["tokenization"])) == ["ingestion", "separation", "tokenization"]


def test_a_run_has_what_it_was_made_from_too(store: ArtifactStore) -> None:
    made = publish_all(store)
    run = add_run(store, made["evaluation"])
    assert run_artifacts(store) == run_artifacts(store, run) == made


def test_a_model_is_named_by_tag_key_or_run(store: ArtifactStore) -> None:
    made = publish_all(store)
    run, model = add_run(store, made["evaluation"]), made["training"]
    move_tag(store, "champion", model.ref)
    names = (None, "champion", "training@champion", "training/555", "555", model.ref.key, run, run[:-2])
    assert {find_model(store, name).artifact.ref for name in names} == {model.ref}
    assert (find_model(store).reason, find_model(store, run).run_id) == ("the champion", run)


def test_without_a_champion_the_newest_run_with_a_model_counts(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissingError, match="there is no trained model"):
        find_model(store)
    made = publish_all(store)
    run = add_run(store, made["training"])
    add_run(store, made["tokenization"])
    found = find_model(store)
    assert (found.artifact.ref, found.run_id) == (made["training"].ref, run)
    assert "there is no champion" in found.reason


def test_what_names_no_model_is_refused(store: ArtifactStore) -> None:
    made = publish_all(store)
    run = add_run(store, made["tokenization"])
    with pytest.raises(NotAModelError, match="tokenization/444444444444 is not a trained model"):
        find_model(store, "tokenization/4")
    with pytest.raises(ArtifactMissingError, match=r"there is no model 'best'.*name a tag such as champion"):
        find_model(store, "best")
    with pytest.raises(ArtifactMissingError, match="has no trained model"):
        find_model(store, run)


def test_what_begins_a_run_and_a_key_is_ambiguous(store: ArtifactStore) -> None:
    made = publish_all(store)
    publish(store, "training", "2", made)
    add_run(store, made["training"])
    with pytest.raises(NotAModelError, match="begins both a run id and the key of a model: write training/2"):
        find_model(store, "2")
    assert find_model(store, "training/2").artifact.ref.key == "2" * 64


def test_the_newest_evaluation_counts_or_that_of_the_models_own_faces(store: ArtifactStore) -> None:
    made = publish_all(store)
    assert find_scores(store, "evaluation/6").ref == find_scores(store, "training/5").ref == made["evaluation"].ref
    others = publish(store, "ingestion", "a", {})
    newer = publish(store, "evaluation", "b", made | {"ingestion": others})
    newest, own = (find_evaluation(store, made["training"], prefer_own_faces=own) for own in (False, True))
    assert newest == newer
    assert own == made["evaluation"]
    store.remove(newer.ref)
    store.remove(made["evaluation"].ref)
    with pytest.raises(ArtifactMissingError, match="has no scores"):
        find_scores(store, "training/5")


def test_a_model_of_another_version_is_refused_with_what_to_do(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = publish_all(store)["training"].ref.key
    monkeypatch.setitem(VERSIONS, "training", VERSIONS["training"] + 1)
    with pytest.raises(OldArtifactError, match=r"published by another version of GIF .* 'gif run'"):
        find_model(store, key)
