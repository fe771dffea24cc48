import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gif_core.artifacts import (
    ArtifactMissingError,
    ArtifactStore,
    PartStore,
    check_artifacts,
    find_leftovers,
    list_tags,
    move_tag,
    read_tag,
    remove_leftovers,
    resolve,
)
from gif_core.artifacts.attempts import attempt_name, this_host
from gif_core.artifacts.gc import DAY, SMALL_FILES
from gif_core.artifacts.records import SEAL, seal_text
from schemas.artifacts import ArtifactRef
from schemas.files import MANIFEST_FILE
from tests.forked import run_forked


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store") if request.param == "local" else request.getfixturevalue("s3_url"))


def publish(store: ArtifactStore, key: str) -> ArtifactRef:
    with store.draft(store.ref("training", key), {}, {}) as draft:
        (draft.folder / "model.txt").write_text(f"model {key}")
        return store.publish(draft, replace=True)


def test_a_tag_moves_from_one_artifact_to_another(store: ArtifactStore) -> None:
    first, second = publish(store, "a" * 64), publish(store, "b" * 64)
    assert read_tag(store, "training", "champion") is None
    move_tag(store, "champion", first)
    move_tag(store, "champion", second)
    assert resolve(store, "training@champion") == second
    assert [tag.name for tag in list_tags(store)] == ["champion"]


def test_a_tag_that_points_at_an_artifact_already_is_not_written_again_unless_it_is_damaged(
    store: ArtifactStore,
) -> None:
    ref = publish(store, "a" * 64)
    assert move_tag(store, "latest", ref) == move_tag(store, "latest", ref)
    store.storage.replace("tags/training/latest.json", b"{}")
    move_tag(store, "latest", ref)
    assert resolve(store, "training@latest") == ref


def test_a_tags_name_cannot_leave_its_folder(store: ArtifactStore) -> None:
    with pytest.raises(ValueError, match="a tag must be a lower-case word"):
        move_tag(store, "../../runs/x", store.ref("training", "a" * 64))


def test_artifacts_are_found_by_the_first_digits_of_their_key(store: ArtifactStore) -> None:
    first, _ = publish(store, "a" * 64), publish(store, "b" * 64)
    assert resolve(store, "aaaa") == first
    assert resolve(store, "training/aa") == first
    with pytest.raises(ArtifactMissingError, match="names 0 artifacts"):
        resolve(store, "cc")
    with pytest.raises(ArtifactMissingError, match="unknown stage 'trainig'"):
        resolve(store, "trainig/aa")
    with pytest.raises(ArtifactMissingError, match="there is no tag 'training@best'"):
        resolve(store, "training@best")


def test_verification_names_every_damaged_file_and_no_other(store: ArtifactStore) -> None:
    good, bad = publish(store, "a" * 64), publish(store, "b" * 64)
    path = store.open(bad).manifest.files[0].path
    store.storage.replace(f"training/{bad.key}/{path}", b"something else")
    checks = {(check.artifact, check.name): check.fault for check in check_artifacts(store, [good, bad])}
    assert checks[str(good), "model.txt"] is None
    assert "sha256" in str(checks[str(bad), "model.txt"])
    store.storage.remove(f"training/{bad.key}/{path}")
    assert [check.fault for check in check_artifacts(store, [bad])] == ["it is missing"]


def test_leftovers_of_the_dead_go_and_work_in_progress_stays(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    ref = publish(store, "a" * 64)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = tmp_path / "training" / ("b" * 64) / f"{this_host()}-{ended.pid}-abc"
    elsewhere = tmp_path / "training" / ("c" * 64) / "otherhost-1-abc"
    for folder in (dead, elsewhere):
        folder.mkdir(parents=True)
        (folder / "half").write_text("half")
    with store.draft(store.ref("training", "d" * 64), {}, {}) as draft:
        (draft.folder / "half").write_text("half")
        for path in draft.folder.iterdir():
            os.utime(path, (1, 1))
        leftovers = find_leftovers(store)
        assert [leftover.path for leftover in leftovers] == [str(dead.relative_to(tmp_path))]
        remove_leftovers(store, leftovers)
        assert (draft.folder / "half").exists()
    assert not dead.exists()
    assert elsewhere.exists()
    assert store.find("training", ref.key)


def test_leftovers_of_other_machines_go_when_they_have_not_changed_for_long(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    stale = tmp_path / "training" / ("b" * 64) / "otherhost-1-abc" / "half"
    stale.parent.mkdir(parents=True)
    stale.write_text("half")
    os.utime(stale, (1, 1))
    assert [leftover.size for leftover in find_leftovers(store)] == [4]


def end_owner(store: ArtifactStore, ref: ArtifactRef) -> None:
    """Let the artifact look as if a process that has ended had written it."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder = Path(ref.uri.removeprefix("file://"))
    old = next(path for path in folder.iterdir() if path.is_dir())
    new = old.rename(folder / f"{this_host()}-{ended.pid}-abc")
    manifest = folder / "manifest.json"
    reseal(manifest, f"{old.name}/", f"{new.name}/")


def reseal(path: Path, old: str, new: str) -> None:
    """Change a record and make its digest right again."""
    plain = SEAL.sub(b"\n}", path.read_bytes())
    path.write_bytes(seal_text(plain.replace(old.encode(), new.encode())))


def test_what_was_just_replaced_stays_for_those_who_are_reading_it(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    ref = publish(store, "a" * 64)
    end_owner(store, ref)
    reading = store.open(ref)
    publish(store, "a" * 64)
    assert find_leftovers(store) == []
    assert reading.path("model.txt").exists()
    assert len(find_leftovers(store, older_than=-60)) == 1


def test_nothing_beside_a_manifest_that_cannot_be_read_is_removed(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    ref = publish(store, "a" * 64)
    end_owner(store, ref)
    (tmp_path / "training" / ref.key / "manifest.json").write_text("{")
    assert find_leftovers(store, older_than=-60) == []


def test_results_of_prefect_go_after_a_month_and_half_written_small_files_with_their_writers(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    of_the_dead = {f"{folder}/.x.json.{this_host()}-{ended.pid}-abc" for folder in SMALL_FILES}
    of_the_living = {f"{folder}/.x.json.{attempt_name()}" for folder in SMALL_FILES}
    elsewhere = {f"{folder}/.x.json.otherhost-1-abc" for folder in SMALL_FILES}
    for path in (*of_the_dead, *of_the_living, *elsewhere, "prefect/young", "prefect/old"):
        store.storage.replace(path, b"{}")
    old = time.time() - 31 * DAY
    os.utime(tmp_path / "prefect/old", (old, old))
    assert {left.path for left in find_leftovers(store)} == {*of_the_dead, "prefect/old"}
    assert {left.path for left in find_leftovers(store, older_than=-60)} == {*of_the_dead, *elsewhere, "prefect/old"}


def tag(store: ArtifactStore) -> None:
    move_tag(store, "champion", store.ref("training", "a" * 64))


def save_part(store: ArtifactStore) -> None:
    PartStore(store, "embedding").save("a" * 64, b"part")


def write_manifest(store: ArtifactStore) -> None:
    store.storage.replace(f"training/{'a' * 64}/{MANIFEST_FILE}", b"{}")


def is_killed_in(write: Callable[[ArtifactStore], None], store: ArtifactStore) -> bool:
    """Let a process write, and kill it before what it has written is on the disk."""

    def die() -> None:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        write(store)

    return run_forked(die) == -signal.SIGKILL


def files_of(store: ArtifactStore) -> set[str]:
    return {file.path for file in store.storage.find("")}


@pytest.mark.parametrize("write", [tag, save_part, write_manifest])
def test_a_kill_while_a_small_file_is_written_leaves_nothing_for_long(
    tmp_path: Path, write: Callable[[ArtifactStore], None]
) -> None:
    store = ArtifactStore(str(tmp_path))
    assert is_killed_in(write, store)
    assert (list_tags(store), PartStore(store, "embedding").names(), store.refs()) == ([], {}, [])
    assert len(files_of(store)) == 1
    remove_leftovers(store, find_leftovers(store))
    assert files_of(store) == set()


def test_a_kill_while_a_manifest_is_replaced_leaves_the_artifact_and_nothing_else_for_long(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    ref = publish(store, "a" * 64)
    whole = files_of(store)
    assert is_killed_in(write_manifest, store)
    assert len(files_of(store) - whole) == 1
    remove_leftovers(store, find_leftovers(store))
    assert files_of(store) == whole
    assert [check.fault for check in check_artifacts(store, [ref])] == [None]
