"""A changed byte in a manifest, tag, run record, decision or checkpoint is noticed, and named; the rest goes on."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from gif_core.artifacts import (
    ArtifactDamagedError,
    ArtifactStore,
    RecordDamagedError,
    begin_run,
    check_artifacts,
    check_records,
    find_champion,
    find_unneeded,
    list_runs,
    list_tags,
    move_tag,
    resolve,
    save_run,
    seal,
    settle,
)
from gif_core.artifacts.records import SEAL, seal_text, unseal
from gif_core.retraining.champions import record_first
from schemas.artifacts import ArtifactRef, Tag
from schemas.loading import load_config

KEY = "a" * 64


def publish(store: ArtifactStore, key: str = KEY) -> ArtifactRef:
    ref = store.ref("training", key)
    with store.draft(ref, {"epochs": 3}, {}) as draft:
        (draft.folder / "model.txt").write_text("model")
        return store.publish(draft)


def flips(content: bytes, count: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    changed = []
    for place in rng.choice(8 * len(content), min(count, 8 * len(content)), replace=False).tolist():
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        changed.append(bytes(flipped))
    return changed


def test_every_flipped_bit_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    ref = publish(store)
    path = tmp_path / "training" / KEY / "manifest.json"
    for content in flips(path.read_bytes(), 300):
        path.write_bytes(content)
        with pytest.raises(ArtifactDamagedError, match=f"training/{KEY}/manifest.json"):
            store.open(ref)
        assert store.find("training", KEY) is None


def test_every_flipped_bit_of_a_tag_is_noticed() -> None:
    tag = Tag(name="latest", ref=ArtifactRef(stage="training", key=KEY, uri="x"), moved_at=datetime.now(UTC))
    assert unseal(Tag, seal(tag), "tags/t.json") == tag
    for content in flips(seal(tag), 2000):
        with pytest.raises(RecordDamagedError, match=r"tags/t\.json"):
            unseal(Tag, content, "tags/t.json")


def test_a_manifest_of_another_artifact_in_its_place_is_refused(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    publish(store)
    other = publish(store, "b" * 64)
    content = (tmp_path / "training" / KEY / "manifest.json").read_bytes()
    (tmp_path / "training" / other.key / "manifest.json").write_bytes(content)
    with pytest.raises(ArtifactDamagedError, match="is the manifest of training/aaaaaaaaaaaa, not of training/bbbb"):
        store.open(other)


def reseal(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(seal_text(change(SEAL.sub(b"\n}", path.read_bytes()))))


def test_check_names_wrong_sizes_and_odd_paths_and_goes_on_with_the_rest(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    refs = [publish(store, letter * 64) for letter in "abcd"]
    manifests = [tmp_path / "training" / ref.key / "manifest.json" for ref in refs]
    reseal(manifests[0], lambda content: content.replace(b'"size": 5', b'"size": 6'))
    reseal(manifests[1], lambda content: content.replace(b'/model.txt"', b'/mod\\u0000el.txt"'))
    manifests[2].write_bytes(b"{")
    found = {file.artifact: file.fault or "" for file in check_artifacts(store, refs)}
    assert "5 bytes where the manifest says 6" in found[str(refs[0])]
    assert "cannot be read" in found[str(refs[1])]
    assert "has no digest" in found[str(refs[2])]
    assert found[str(refs[3])] == ""


def test_one_unreadable_tag_or_run_leaves_the_others_usable_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ArtifactStore(str(tmp_path))
    ref = publish(store)
    move_tag(store, "good", ref)
    move_tag(store, "bad", ref)
    (tmp_path / "tags/training/bad.json").write_bytes(b"{}")
    run = begin_run(store, load_config("demo"))
    save_run(store, run, state="completed")
    (tmp_path / "runs/20200101-0.json").write_bytes(b"{}")
    with caplog.at_level(logging.WARNING):
        assert resolve(store, "training@good") == ref
        assert [tag.name for tag in list_tags(store)] == ["good"]
        assert [found.run_id for found in list_runs(store)] == [run.run_id]
    assert "tags/training/bad.json" in caplog.text
    assert "runs/20200101-0.json" in caplog.text
    with pytest.raises(RecordDamagedError, match=r"tags/training/bad\.json"):
        resolve(store, "training@bad")
    assert {(file.artifact, file.name) for file in check_records(store) if file.fault} == {
        ("tags", "training/bad.json"),
        ("runs", "20200101-0.json"),
    }
    with pytest.raises(RecordDamagedError):
        find_unneeded(store, keep_runs=1)


def test_a_damaged_champion_tag_is_set_again_from_the_log(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    ref = publish(store)
    record_first(store, "champion", KEY, because="there was none")
    (tmp_path / "tags/training/champion.json").write_bytes(b"{}")
    champion = find_champion(store)
    assert champion is not None
    assert champion.ref == ref
    assert settle(store)
    assert resolve(store, "training@champion") == ref
