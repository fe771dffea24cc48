"""What goes when old runs are pruned: nothing that a kept run, a tag or a champion needs."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gif_core.artifacts import (
    ArtifactStore,
    begin_run,
    check_artifacts,
    find_champion,
    find_unneeded,
    move_tag,
    only_one,
    remove_unneeded,
    save_run,
)
from gif_core.artifacts.pruning import StoreInUseError
from gif_core.retraining import promote, roll_back
from schemas.artifacts import ArtifactRef, Manifest, RunRecord, StageRecord
from schemas.errors import GifError
from schemas.run import RunConfig
from schemas.stages import INPUTS, STAGES, StageName


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store"))


def key_of(stage: StageName, run: int) -> str:
    return f"{STAGES.index(stage)}{run:x}".ljust(64, "0")


def run_once(store: ArtifactStore, run: int, extends: int | None = None) -> RunRecord:
    """A run that has made an artifact of every stage."""
    done: dict[StageName, StageRecord] = {}
    for stage in STAGES:
        inputs = {name: store.open(store.ref(name, key_of(name, run))).made_from for name in INPUTS[stage]}
        is_extended = extends is not None and stage in ("separation", "tokenization")
        settings = {"extends": key_of(stage, extends)} if is_extended else {}
        with store.draft(store.ref(stage, key_of(stage, run)), settings, inputs) as draft:
            (draft.folder / "file").write_text(f"{stage} {run}")
            store.publish(draft)
        done[stage] = StageRecord(key=key_of(stage, run), action="computed", seconds=1)
    return save_run(store, begin_run(store, RunConfig(store=store.storage.url)), state="completed", stages=done)


def model(store: ArtifactStore, run: int) -> ArtifactRef:
    return store.ref("training", key_of("training", run))


def unneeded(store: ArtifactStore, keep_runs: int = 1) -> set[tuple[str, int]]:
    return {(manifest.stage, int(manifest.key[1], 16)) for manifest in find_unneeded(store, keep_runs=keep_runs)}


def everything(*runs: int) -> set[tuple[str, int]]:
    return {(stage, run) for stage in STAGES for run in runs}


def test_what_no_kept_run_tag_or_champion_needs_goes_and_all_else_stays_whole(store: ArtifactStore) -> None:
    for run in range(6):
        run_once(store, run)
    for run in (1, 2, 3):
        promote(store, store.open(model(store, run)), because="x")
    move_tag(store, "mine", store.ref("embedding", key_of("embedding", 4)))
    kept = {("ingestion", 4), ("embedding", 4)} | {(stage, run) for stage in STAGES[:5] for run in (2, 3)}
    assert unneeded(store) == everything(0, 1, 2, 3, 4) - kept
    assert unneeded(store, keep_runs=2) == everything(0, 1, 2, 3) - kept
    assert find_unneeded(store, keep_runs=1, older_than=timedelta(days=1)) == []
    before = len(store.refs())
    gone = remove_unneeded(store, find_unneeded(store, keep_runs=1))
    assert len(store.refs()) == before - len(gone)
    assert unneeded(store) == set()
    assert [check for check in check_artifacts(store, store.refs()) if check.fault] == []
    roll_back(store, because="x")
    champion = find_champion(store)
    assert champion
    assert champion.ref == model(store, 2)
    assert list(store.storage.find("leases")) == []


def test_codes_that_were_extended_stay_and_what_those_were_made_from_goes(store: ArtifactStore) -> None:
    run_once(store, 0)
    run_once(store, 1, extends=0)
    run_once(store, 2, extends=1)
    gone = unneeded(store)
    assert {("separation", 0), ("separation", 1), ("tokenization", 0), ("tokenization", 1)}.isdisjoint(gone)
    assert {("ingestion", 0), ("ingestion", 1), ("embedding", 0), ("embedding", 1)} <= gone
    assert everything(2).isdisjoint(gone)


def test_nothing_goes_while_a_run_goes_on_or_holds_a_lease_or_has_begun_meanwhile(store: ArtifactStore) -> None:
    run_once(store, 0)
    run_once(store, 1)
    found = find_unneeded(store, keep_runs=1)
    with only_one(store.storage, model(store, 5)), pytest.raises(StoreInUseError, match="prune when it has ended"):
        find_unneeded(store, keep_runs=1)
    begun = begin_run(store, RunConfig(store=store.storage.url))
    with pytest.raises(StoreInUseError, match=begun.run_id):
        find_unneeded(store, keep_runs=1)
    save_run(store, begun, state="failed")
    assert remove_unneeded(store, beginning_a_run_after_the_first(store, found)) == found[:1]


def beginning_a_run_after_the_first(store: ArtifactStore, found: list[Manifest]) -> Iterator[Manifest]:
    yield found[0]
    begin_run(store, RunConfig(store=store.storage.url))
    yield from found[1:]


def test_an_artifact_that_was_made_again_meanwhile_stays(store: ArtifactStore) -> None:
    run_once(store, 0)
    run_once(store, 1)
    found = find_unneeded(store, keep_runs=1)
    with store.draft(model(store, 0), {}, {}) as draft:
        (draft.folder / "file").write_text("anew")
        store.publish(draft, replace=True)
    assert model(store, 0) not in {store.ref(each.stage, each.key) for each in remove_unneeded(store, found)}
    assert store.find("training", key_of("training", 0))


def test_nothing_is_pruned_when_a_manifest_cannot_be_read(store: ArtifactStore) -> None:
    run_once(store, 0)
    store.storage.replace(f"training/{key_of('training', 0)}/manifest.json", b"{")
    with pytest.raises(GifError, match="manifests cannot be read"):
        find_unneeded(store, keep_runs=1)
