import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from gif_core.artifacts import (
    ArtifactDamagedError,
    ArtifactMissingError,
    ArtifactStore,
    Draft,
    artifact_key,
    attempts,
    cache_folder,
    check_artifacts,
)
from gif_core.artifacts.artifact import Origins
from gif_core.artifacts.records import SEAL, seal_text
from schemas.artifacts import ArtifactRef, MadeFrom
from tests.forked import run_forked

KEY = artifact_key("tokenization", {"length": 4}, {"separation": "0" * 64})
OTHER_KEY = artifact_key("tokenization", {"length": 5}, {"separation": "0" * 64})
INPUTS = {"separation": MadeFrom(key="0" * 64, digest="1" * 64)}


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """Every claim here holds on a local disk and on a real S3 server alike."""
    return ArtifactStore(str(tmp_path / "store") if request.param == "local" else request.getfixturevalue("s3_url"))


def draft_of(store: ArtifactStore, key: str = KEY, inputs: Origins = INPUTS) -> AbstractContextManager[Draft]:
    return store.draft(store.ref("tokenization", key), {"length": 4}, inputs)


def publish(
    store: ArtifactStore, content: str = "codes", key: str = KEY, inputs: Origins = INPUTS, *, replace: bool = False
) -> ArtifactRef:
    with draft_of(store, key, inputs) as draft:
        (draft.folder / "codes.txt").write_text(content)
        (draft.folder / "parts").mkdir()
        (draft.folder / "parts" / "a.txt").write_text("part")
        draft.metrics["identities"] = 3
        return store.publish(draft, replace=replace)


def stored_path(store: ArtifactStore, ref: ArtifactRef, name: str) -> str:
    file = next(file for file in store.open(ref).manifest.files if file.name == name)
    return f"{ref.stage}/{ref.key}/{file.path}"


def damage(store: ArtifactStore, ref: ArtifactRef, content: bytes) -> None:
    store.storage.replace(stored_path(store, ref, "codes.txt"), content)


def test_what_was_published_is_read_back_with_its_lineage(store: ArtifactStore) -> None:
    artifact = store.open(publish(store))
    assert artifact.path("codes.txt").read_text() == "codes"
    assert artifact.path("parts/a.txt").read_text() == "part"
    assert artifact.manifest.inputs == INPUTS
    assert artifact.manifest.metrics == {"identities": 3}
    assert artifact.names() == ["codes.txt", "parts/a.txt"]


def test_a_folder_without_a_manifest_does_not_exist(store: ArtifactStore) -> None:
    with draft_of(store) as draft:
        (draft.folder / "codes.txt").write_text("half")
        assert store.find("tokenization", KEY) is None
        assert store.manifests() == []
    with pytest.raises(ArtifactMissingError, match="there is no artifact tokenization/"):
        store.open(store.ref("tokenization", KEY))


def test_a_failed_draft_leaves_nothing_behind(store: ArtifactStore) -> None:
    with contextlib.suppress(KeyboardInterrupt), draft_of(store) as draft:
        (draft.folder / "codes.txt").write_text("half")
        raise KeyboardInterrupt
    assert not draft.folder.exists()
    assert list(store.storage.find("tokenization")) == []


def test_a_failed_attempt_that_can_be_resumed_is_given_to_the_next_one_of_the_same_key(store: ArtifactStore) -> None:
    def attempt(key: str) -> AbstractContextManager[Draft]:
        return store.draft(store.ref("tokenization", key), {"length": 4}, INPUTS, resume=True)

    with contextlib.suppress(KeyboardInterrupt), attempt(KEY) as failed:
        (failed.folder / "codes.txt").write_text("done")
        (failed.folder / ".work").mkdir()
        (failed.folder / ".work" / "journal").write_text("one file")
        raise KeyboardInterrupt
    with attempt(OTHER_KEY) as other:
        assert not (other.folder / "codes.txt").exists()
    with attempt(KEY) as draft:
        assert (draft.folder / ".work" / "journal").read_text() == "one file"
        ref = store.publish(draft)
    assert store.open(ref).names() == ["codes.txt"]
    assert store.open(ref).path("codes.txt").read_text() == "done"
    assert not (draft.folder / ".work").exists()
    with attempt(KEY) as again:
        assert not (again.folder / "codes.txt").exists()
    assert store.open(ref).path("codes.txt").read_text() == "done"


def test_an_attempt_made_from_other_inputs_of_the_same_key_is_not_resumed(store: ArtifactStore) -> None:
    def attempt(digest: str) -> AbstractContextManager[Draft]:
        inputs = {"separation": MadeFrom(key="0" * 64, digest=digest * 64)}
        return store.draft(store.ref("tokenization", KEY), {"length": 4}, inputs, resume=True)

    with contextlib.suppress(KeyboardInterrupt), attempt("1") as failed:
        (failed.folder / ".work").write_text("of the first vectors")
        raise KeyboardInterrupt
    with contextlib.suppress(KeyboardInterrupt), attempt("2") as other:
        assert not (other.folder / ".work").exists()
        raise KeyboardInterrupt
    with attempt("1") as again:
        assert (again.folder / ".work").read_text() == "of the first vectors"


def test_finished_files_are_stored_while_others_are_still_written(store: ArtifactStore) -> None:
    with draft_of(store) as draft:
        (draft.folder / "a.arrow").write_text("finished")
        (draft.folder / ".b.arrow").write_text("half")
        store.begin_storing(draft, "*.arrow")
        assert [path.name for path in draft.begun] == ["a.arrow"]
        assert draft.begun[draft.folder / "a.arrow"].result().size == 8
        (draft.folder / ".b.arrow").rename(draft.folder / "b.arrow")
        store.begin_storing(draft, "*.arrow")
        (draft.folder / "codes.txt").write_text("last")
        ref = store.publish(draft)
    assert store.open(ref).names() == ["a.arrow", "b.arrow", "codes.txt"]
    assert store.open(ref).path("a.arrow").read_text() == "finished"
    assert [check.fault for check in check_artifacts(store, [ref])] == [None] * 3


def test_a_failed_attempt_that_was_stored_in_part_leaves_nothing_in_the_store(store: ArtifactStore) -> None:
    with contextlib.suppress(KeyboardInterrupt), draft_of(store) as draft:
        for number in range(30):
            (draft.folder / f"{number}.arrow").write_bytes(bytes(2**18))
        store.begin_storing(draft, "*.arrow")
        raise KeyboardInterrupt
    assert all(future.done() for future in draft.begun.values())
    assert list(store.storage.find("tokenization")) == []


def test_files_carried_over_from_another_artifact_are_its_own_from_then_on(store: ArtifactStore) -> None:
    old = store.open(publish(store, "old"))
    with draft_of(store, OTHER_KEY) as draft:
        (draft.folder / "more.txt").write_text("more")
        draft.carry(old, ["codes.txt", "parts/a.txt"])
        new = store.open(store.publish(draft))
    assert new.names() == ["codes.txt", "more.txt", "parts/a.txt"]
    assert new.stored("codes.txt").sha256 == old.stored("codes.txt").sha256
    store.remove(old.ref)
    assert store.find("tokenization", OTHER_KEY)
    assert [check.fault for check in check_artifacts(store, [new.ref]) if check.fault] == []


def test_the_second_writer_of_a_key_adopts_the_first_ones_artifact(store: ArtifactStore) -> None:
    with draft_of(store) as slow:
        (slow.folder / "codes.txt").write_text("slow")
        first = publish(store, "fast")
        second = store.publish(slow)
    assert first == second
    assert store.open(second).path("codes.txt").read_text() == "fast"
    assert {file.path.split("/")[2] for file in store.storage.find("tokenization")} == {
        "manifest.json",
        stored_path(store, first, "codes.txt").split("/")[2],
    }


def test_of_many_writers_at_once_exactly_one_wins_and_none_fails(store: ArtifactStore) -> None:
    barrier, refs, errors = threading.Barrier(8), [], []

    def write(number: int) -> None:
        try:
            with draft_of(store) as draft:
                (draft.folder / "codes.txt").write_text(f"writer {number}")
                barrier.wait()
                refs.append(store.publish(draft))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(set(refs)) == 1
    assert store.open(refs[0]).path("codes.txt").read_text().startswith("writer ")
    assert len({file.path.split("/")[2] for file in store.storage.find("tokenization")}) == 2


def test_a_changed_byte_is_noticed_on_read_and_the_message_says_what_to_do(store: ArtifactStore) -> None:
    ref = publish(store)
    damage(store, ref, b"cOdes")
    for kept in cache_folder().glob("files/*/*/*"):
        kept.unlink()
    with pytest.raises(ArtifactDamagedError, match=r"codes\.txt.*sha256.*gif run --refresh tokenization"):
        store.open(ref).path("codes.txt")


def test_an_artifact_with_a_lost_or_short_file_is_not_found_and_is_replaced(store: ArtifactStore) -> None:
    ref = publish(store)
    damage(store, ref, b"x")
    assert store.find("tokenization", KEY) is None
    store.storage.remove(stored_path(store, ref, "codes.txt"))
    assert store.find("tokenization", KEY) is None
    publish(store, "again")
    assert store.open(ref).path("codes.txt").read_text() == "again"


def test_an_unreadable_manifest_is_not_found_and_is_replaced(store: ArtifactStore) -> None:
    ref = publish(store)
    store.storage.replace(f"tokenization/{KEY}/manifest.json", b"{")
    assert store.find("tokenization", KEY) is None
    assert store.manifests() == []
    publish(store, "again")
    assert store.open(ref).path("codes.txt").read_text() == "again"


def test_an_artifact_made_from_other_inputs_is_out_of_date_and_is_replaced(store: ArtifactStore) -> None:
    publish(store, "old")
    newer = {"separation": MadeFrom(key="0" * 64, digest="2" * 64)}
    assert store.find("tokenization", KEY, INPUTS)
    assert store.find("tokenization", KEY, newer) is None
    publish(store, "new", inputs=newer)
    assert store.open(store.ref("tokenization", KEY)).path("codes.txt").read_text() == "new"
    assert store.find("tokenization", KEY, newer)


def test_an_interruption_right_after_the_commit_does_not_take_the_files_away(store: ArtifactStore) -> None:
    create = store.storage.create

    def create_and_stop(path: str, content: bytes) -> None:
        create(path, content)
        raise KeyboardInterrupt

    store.storage.create = create_and_stop  # type: ignore[method-assign]
    with contextlib.suppress(KeyboardInterrupt):
        publish(store)
    assert store.find("tokenization", KEY)


def test_a_file_that_leads_out_of_the_artifact_is_refused(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    publish(store)
    path = tmp_path / "tokenization" / KEY / "manifest.json"
    path.write_bytes(seal_text(SEAL.sub(b"\n}", path.read_bytes()).replace(b'/codes.txt"', b'/../../../codes.txt"')))
    with pytest.raises(ArtifactDamagedError, match="leads out of the artifact"):
        store.open(store.ref("tokenization", KEY))


def test_a_manifest_of_a_later_version_with_more_fields_can_be_read(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    ref = publish(store)
    path = tmp_path / "tokenization" / KEY / "manifest.json"
    path.write_bytes(seal_text(json.dumps(json.loads(path.read_text()) | {"a_new_field": 1}, indent=1).encode()))
    assert store.open(ref).path("codes.txt").read_text() == "codes"


def test_a_reader_of_the_old_artifact_reads_on_when_it_is_replaced(store: ArtifactStore) -> None:
    ref = publish(store, "old")
    old = store.open(ref)
    publish(store, "new", replace=True)
    assert store.open(ref).path("codes.txt").read_text() == "new"
    assert old.path("codes.txt").read_text() == "old"


def test_a_removed_artifact_is_gone_and_others_stay(store: ArtifactStore) -> None:
    ref, other = publish(store), publish(store, key=OTHER_KEY)
    store.remove(ref)
    assert store.find("tokenization", KEY) is None
    assert store.refs() == [other]


def test_remote_files_are_read_from_the_local_cache_and_fetched_again_when_that_is_damaged(
    s3_url: str,
) -> None:
    store = ArtifactStore(s3_url)
    ref = publish(store)
    cached = store.open(ref).path("codes.txt")
    assert cached.is_relative_to(cache_folder())
    cached.write_text("other")
    assert store.open(ref).path("codes.txt").read_text() == "codes"


def test_a_key_depends_on_settings_inputs_and_stage_but_not_on_their_order() -> None:
    settings, inputs = {"a": 1, "b": 2}, {"ingestion": "1", "separation": "2"}
    key = artifact_key("tokenization", settings, inputs)
    assert key == artifact_key("tokenization", {"b": 2, "a": 1}, {"separation": "2", "ingestion": "1"})
    others = {
        artifact_key("training", settings, inputs),
        artifact_key("tokenization", {"a": 1, "b": 3}, inputs),
        artifact_key("tokenization", settings, {"ingestion": "1", "separation": "3"}),
    }
    assert len(others | {key}) == 4


def test_a_manifest_is_json_that_anybody_can_read(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    publish(store)
    manifest = json.loads((tmp_path / "tokenization" / KEY / "manifest.json").read_text())
    assert manifest["settings"] == {"length": 4}
    assert {file["name"] for file in manifest["files"]} == {"codes.txt", "parts/a.txt"}


@contextlib.contextmanager
def attempt_in_another_container(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Draft]:
    """A draft whose process is known by another name than any that can be looked up here."""
    with monkeypatch.context() as patch:
        patch.setattr(attempts, "this_host", lambda: "host_0ther")
        with store.draft(store.ref("tokenization", KEY), {}, INPUTS, resume=True) as draft:
            (draft.folder / ".work").write_text("half")
            patch.undo()
            yield draft


def resumed(store: ArtifactStore) -> bool:
    """Whether an attempt finds something to go on with."""
    with store.draft(store.ref("tokenization", KEY), {}, INPUTS, resume=True) as draft:
        return (draft.folder / ".work").exists()


def test_what_a_living_attempt_of_another_container_has_is_not_taken_and_what_it_gave_up_is(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.suppress(KeyboardInterrupt), attempt_in_another_container(store, monkeypatch) as draft:
        assert not resumed(store)
        assert (draft.folder / ".work").exists()
        raise KeyboardInterrupt
    assert resumed(store)


@pytest.mark.parametrize("is_own_disk", [True, False])
def test_what_was_left_before_a_reboot_is_taken_where_locks_are_seen_by_all_who_write(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, is_own_disk: bool
) -> None:
    if not is_own_disk:
        monkeypatch.setattr(attempts, "OWN_DISKS", frozenset())

    def die() -> None:
        with attempt_in_another_container(store, monkeypatch):
            os.kill(os.getpid(), signal.SIGKILL)

    assert run_forked(die) == -signal.SIGKILL
    assert resumed(store) == is_own_disk
