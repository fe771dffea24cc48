"""The history of champions: decided once, never changed, and the tag follows it whoever dies."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gif_core.artifacts import (
    Artifact,
    ArtifactMissingError,
    ArtifactStore,
    ChampionError,
    find_champion,
    find_leftovers,
    list_tags,
    move_tag,
    read_history,
    read_tag,
    settle,
)
from gif_core.artifacts.decisions import read_histories
from gif_core.retraining import champions, promote, record_first, record_verdict, roll_back

A, B, C, D = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)


def publish(store: ArtifactStore, key: str) -> Artifact:
    with store.draft(store.ref("training", key), {}, {}) as draft:
        (draft.folder / "backbone.safetensors").write_text(key)
        return store.open(store.publish(draft))


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    address = str(tmp_path / "store") if request.param == "local" else request.getfixturevalue("s3_url")
    store = ArtifactStore(address)
    for key in (A, B, C, D):
        publish(store, key)
    return store


def tagged(store: ArtifactStore) -> str | None:
    tag = read_tag(store, "training", "champion")
    return tag.ref.key if tag else None


def verdict(store: ArtifactStore, champion: str, challenger: str, *, promoted: bool, since: int = 0) -> Any:
    models = {"champion": champion, "challenger": challenger, "promoted": promoted}
    return record_verdict(store, "champion", because="x", evaluations={}, since=since, **models)


def test_the_first_model_becomes_champion_and_the_tag_points_at_it(store: ArtifactStore) -> None:
    assert find_champion(store) is None
    entry = record_first(store, "champion", A, because="there was none")
    assert (entry.number, entry.kind, entry.champion, entry.before) == (1, "first", A, None)
    assert tagged(store) == A
    assert record_first(store, "champion", A, because="again") == entry
    assert [tag.name for tag in list_tags(store)] == ["champion"]


def test_a_promoted_challenger_is_champion_and_a_refused_one_is_not(store: ArtifactStore) -> None:
    record_first(store, "champion", A, because="x")
    assert verdict(store, A, B, promoted=False).kind == "kept"
    assert tagged(store) == A
    assert verdict(store, A, C, promoted=True).kind == "promoted"
    assert tagged(store) == C
    assert [(entry.number, entry.champion) for entry in read_history(store)] == [(1, A), (2, A), (3, C)]


def test_the_same_comparison_is_decided_once(store: ArtifactStore) -> None:
    record_first(store, "champion", A, because="x")
    with ThreadPoolExecutor(4) as pool:
        entries = list(pool.map(lambda _: verdict(store, A, B, promoted=True), range(4)))
    assert {entry.number for entry in entries} == {2}
    assert len(read_history(store)) == 2
    assert tagged(store) == B


def test_a_late_verdict_does_not_undo_a_way_back_but_a_new_comparison_counts(store: ArtifactStore) -> None:
    record_first(store, "champion", A, because="x")
    promoted = verdict(store, A, B, promoted=True, since=1)
    roll_back(store, because="false matches")
    assert verdict(store, A, B, promoted=True, since=1) == promoted, "the other process of the same comparison"
    assert tagged(store) == A
    assert verdict(store, A, B, promoted=True, since=3).number == 4
    assert tagged(store) == B


def test_a_comparison_with_somebody_who_is_champion_no_more_is_refused(store: ArtifactStore) -> None:
    record_first(store, "champion", A, because="x")
    promote(store, store.open(store.ref("training", C)), because="by hand")
    with pytest.raises(ChampionError, match=r"training/cccccccccccc has become champion meanwhile: retrain again"):
        verdict(store, A, B, promoted=True)
    assert tagged(store) == C


def test_a_tag_that_a_dead_process_did_not_move_is_moved_by_the_next(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_first(store, "champion", A, because="x")

    def die(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(champions, "settle", die)
        with pytest.raises(KeyboardInterrupt):
            verdict(store, A, B, promoted=True)
    assert tagged(store) == A
    champion = find_champion(store)
    assert champion is not None
    assert champion.ref.key == B, "the decision counts, not the tag"
    assert settle(store)
    assert tagged(store) == B
    assert not settle(store)


def test_going_back_twice_goes_back_two_steps(store: ArtifactStore) -> None:
    record_first(store, "champion", A, because="x")
    verdict(store, A, B, promoted=True)
    verdict(store, B, C, promoted=True)
    verdict(store, C, D, promoted=False)
    assert roll_back(store, because="false matches").champion == B
    assert roll_back(store, because="worse still").champion == A
    assert tagged(store) == A
    with pytest.raises(ChampionError, match="there is no champion before the one in use"):
        roll_back(store, because="once more")
    verdict(store, A, D, promoted=True)
    assert roll_back(store, because="x").champion == A
    assert len(read_history(store)) == 8


def test_an_entry_whose_answer_was_lost_is_not_made_twice(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may carry a write out and then fail to say so; the retry finds the file there."""
    record_first(store, "champion", A, because="x")
    verdict(store, A, B, promoted=True)
    verdict(store, B, C, promoted=True)
    create = store.storage.create

    def create_and_lose(path: str, content: bytes) -> None:
        create(path, content)
        raise FileExistsError(path)

    monkeypatch.setattr(store.storage, "create", create_and_lose)
    assert roll_back(store, because="x").champion == B
    assert tagged(store) == B
    assert len(read_history(store)) == 4


def test_one_goes_back_only_to_a_champion_that_is_still_there(store: ArtifactStore) -> None:
    record_first(store, "champion", A, because="x")
    verdict(store, A, B, promoted=True)
    with pytest.raises(ChampionError, match="training/cccccccccccc was never champion"):
        roll_back(store, because="x", to=C)
    with pytest.raises(ChampionError, match="is the champion already"):
        roll_back(store, because="x", to=B)
    store.remove(store.ref("training", A))
    with pytest.raises(ArtifactMissingError, match="is not whole"):
        roll_back(store, because="x")
    assert tagged(store) == B


def test_a_model_that_is_not_whole_is_not_promoted(store: ArtifactStore) -> None:
    model = publish(store, "e" * 64)
    store.storage.remove(f"training/{model.ref.key}/{model.stored('backbone.safetensors').path}")
    with pytest.raises(ArtifactMissingError, match="is not whole"):
        promote(store, model, because="x")
    assert read_history(store) == []


def test_a_model_that_was_tagged_before_there_was_a_history_is_the_champion(store: ArtifactStore) -> None:
    move_tag(store, "champion", store.ref("training", A))
    champion = find_champion(store)
    assert champion is not None
    assert champion.ref.key == A
    assert promote(store, store.open(store.ref("training", B)), because="x").before == A
    assert roll_back(store, because="x").champion == A


def test_lines_of_champions_do_not_mix(store: ArtifactStore) -> None:
    record_first(store, "champion", A, because="x")
    record_first(store, "small", B, because="x")
    assert [(entry.tag, entry.champion) for entry in read_histories(store)] == [("champion", A), ("small", B)]
    assert find_leftovers(store, older_than=0) == []


def test_a_champion_that_is_gone_is_told(store: ArtifactStore) -> None:
    record_first(store, "champion", A, because="x")
    store.remove(store.ref("training", A))
    with pytest.raises(ArtifactMissingError, match=r"the champion training/a+ is not whole"):
        find_champion(store)
