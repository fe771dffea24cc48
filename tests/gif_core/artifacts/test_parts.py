from dataclasses import dataclass
from pathlib import Path

import pytest

from gif_core.artifacts import (
    ArtifactDamagedError,
    ArtifactMissingError,
    ArtifactStore,
    PartJob,
    PartRun,
    PartStore,
    begin_run,
    find_leftovers,
    list_parts,
    remove_leftovers,
    save_run,
)
from gif_core.artifacts.parts import parts_of
from schemas.artifacts import ArtifactRef
from schemas.files import PARTS_FILE
from schemas.run import RunConfig

KEY = "a" * 64


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store") if request.param == "local" else request.getfixturevalue("s3_url"))


def publish(store: ArtifactStore, names: list[str]) -> ArtifactRef:
    with store.draft(store.ref("embedding", KEY), {}, {}) as draft:
        (draft.folder / "vectors.parquet").write_text("vectors")
        (draft.folder / PARTS_FILE).write_text(list_parts(names))
        return store.publish(draft)


def test_a_part_is_found_by_its_key_and_read_back(store: ArtifactStore) -> None:
    parts = PartStore(store, "embedding")
    assert parts.names() == {}
    names = {key * 64: parts.save(key * 64, f"content {key}".encode()) for key in "abc"}
    assert parts.names() == names
    assert parts.load(names["b" * 64]) == b"content b"
    assert PartStore(store, "training").names() == {}


def test_two_results_under_one_key_are_both_whole_and_all_identities_takes_the_same(store: ArtifactStore) -> None:
    parts = PartStore(store, "embedding")
    written = {parts.save(KEY, content) for content in (b"one", b"two")}
    assert len(written) == 2
    assert parts.names()[KEY] == min(written)
    assert {parts.load(name) for name in written} == {b"one", b"two"}


def test_a_damaged_part_is_rejected_and_computed_again(store: ArtifactStore) -> None:
    parts = PartStore(store, "embedding")
    name = parts.save(KEY, b"whole")
    store.storage.replace(f"parts/embedding/{name}", b"who")
    with pytest.raises(ArtifactDamagedError, match="was damaged and is removed: run again"):
        parts.load(name)
    assert parts.names() == {}
    with pytest.raises(ArtifactMissingError, match="is missing: run again"):
        parts.load(name)


def test_parts_that_an_artifact_was_made_of_stay_and_others_go_when_they_are_old(store: ArtifactStore) -> None:
    parts = PartStore(store, "embedding")
    used, unused = parts.save("a" * 64, b"used"), parts.save("b" * 64, b"unused")
    artifact = store.open(publish(store, [used]))
    assert parts_of(artifact) == [used]
    assert find_leftovers(store) == [], "a run may still be at work"
    leftovers = find_leftovers(store, older_than=-10)
    assert [leftover.path for leftover in leftovers] == [f"parts/embedding/{unused}"]
    remove_leftovers(store, leftovers)
    assert list(parts.names().values()) == [used]
    store.remove(artifact.ref)
    assert [leftover.path for leftover in find_leftovers(store, older_than=-10)] == [f"parts/embedding/{used}"]


def test_parts_stay_while_a_run_is_active_or_a_manifest_cannot_be_read(store: ArtifactStore) -> None:
    parts = PartStore(store, "embedding")
    name = parts.save("b" * 64, b"unused")
    run = begin_run(store, RunConfig(store=store.storage.url))
    assert find_leftovers(store, older_than=-10) == []
    save_run(store, run, state="completed")
    assert len(find_leftovers(store, older_than=-10)) == 1
    ref = publish(store, [name])
    store.storage.replace(f"embedding/{ref.key}/manifest.json", b"damaged")
    assert not [left for left in find_leftovers(store, older_than=-10) if left.path.startswith("parts")]


def test_in_what_parts_the_work_was_done_is_no_part_of_the_content(store: ArtifactStore) -> None:
    one = store.open(publish(store, ["x-1"])).manifest
    assert one.digest == one.model_copy(update={"files": [f for f in one.files if f.name != PARTS_FILE]}).digest


@dataclass(frozen=True)
class CountedPart(PartJob):
    """A part that leaves a line in a file whenever it is computed."""

    kind = "count part"
    stage = "embedding"
    log: str

    @property
    def title(self) -> str:
        return "count"

    def compute(self, threads: int) -> bytes:
        with Path(self.log).open("a") as file:
            file.write("computed\n")
        return b"content"


def test_a_part_that_an_engine_asks_for_twice_is_computed_once_unless_from_scratch(
    store: ArtifactStore, tmp_path: Path
) -> None:
    log, parts = tmp_path / "log", PartStore(store, "embedding")
    job = CountedPart(store.storage.url, KEY, "cpu", 1, str(log))
    parts.save("b" * 64, b"another part")
    assert parts.find(KEY) is None
    names = {job.compute_and_store(1) for _ in range(2)}
    assert names == {parts.find(KEY)}
    assert log.read_text() == "computed\n"
    (again,) = PartRun(parts, [job], from_scratch=True).missing
    again.compute_and_store(1)
    assert log.read_text() == "computed\n" * 2
