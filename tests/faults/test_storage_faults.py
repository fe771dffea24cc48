"""Full disks, flipped bits, half-written artifacts, wrong clocks, and sweeping while somebody reads."""

import errno
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gif_core.artifacts import ArtifactDamagedError, ArtifactStore
from gif_core.artifacts.attempts import MARKER
from gif_core.artifacts.cache import cache_folder
from gif_core.artifacts.errors import DiskFullError
from gif_core.artifacts.upkeep import find_leftovers, remove_leftovers, verify_artifacts
from schemas.artifacts import ArtifactRef
from tests.faults.proxy import FaultyProxy

KEY = "a" * 64


def publish(store: ArtifactStore, content: bytes, *, replace: bool = False) -> ArtifactRef:
    with store.draft(store.ref("training", KEY), {}, {}) as draft:
        (draft.folder / "model").write_bytes(content)
        return store.publish(draft, replace=replace)


def faults(store: ArtifactStore) -> list[str]:
    return [check.fault for check in verify_artifacts(store, store.refs()) if check.fault]


def forget_downloads() -> None:
    for copy in cache_folder().glob("files/*/*/*"):
        copy.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_full_while_publishing_loses_nothing_and_says_so(small_disk: Path) -> None:
    store = ArtifactStore(str(small_disk / "store"))
    ref = publish(store, b"old")
    with pytest.raises(DiskFullError, match=r"the disk of .* is full: .*run again"):
        publish(store, bytes(2**21), replace=True)
    assert store.open(ref).path("model").read_bytes() == b"old"
    assert faults(store) == []
    assert find_leftovers(store, older_than=-60) == []
    publish(store, b"new", replace=True)
    assert store.open(ref).path("model").read_bytes() == b"new"


def test_a_disk_that_is_full_at_the_last_moment_leaves_the_old_manifest_and_no_file(small_disk: Path) -> None:
    store = ArtifactStore(str(small_disk / "store"))
    publish(store, b"old")
    ballast = small_disk / "ballast"

    def publish_without_room() -> None:
        with store.draft(store.ref("training", KEY), {}, {}) as draft:
            (draft.folder / "model").write_bytes(b"new")
            with pytest.raises(OSError, match="No space"):
                ballast.write_bytes(bytes(2**21))
            store.publish(draft, replace=True)

    with pytest.raises(DiskFullError):
        publish_without_room()
    ballast.unlink()
    assert store.open(store.ref("training", KEY)).path("model").read_bytes() == b"old"
    assert len(list(store.storage.find("training"))) == 2


def test_a_cache_on_a_full_disk_leaves_no_half_download(
    small_disk: Path, remote: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = publish(remote, bytes(2**21))
    monkeypatch.setenv("GIF_CACHE", str(small_disk / "cache"))
    monkeypatch.setenv("GIF_CACHE_SIZE", "1GB")
    with pytest.raises(OSError, match="No space") as full:
        remote.open(ref).path("model")
    assert full.value.errno == errno.ENOSPC
    assert list((small_disk / "cache" / "partial").glob("*")) == []


def test_a_flipped_bit_is_found_by_reading_and_by_verifying_and_mended_by_making_it_again(
    store: ArtifactStore,
) -> None:
    ref = publish(store, bytes(1000))
    (file,) = store.open(ref).manifest.files
    store.storage.replace(f"training/{KEY}/{file.path}", bytes(500) + b"\x01" + bytes(499))
    forget_downloads()
    with pytest.raises(ArtifactDamagedError, match=r"sha256.*rebuild it with 'gif run --refresh training'"):
        store.open(ref).path("model")
    assert len(faults(store)) == 1
    publish(store, bytes(1000), replace=True)
    assert faults(store) == []
    assert store.open(ref).path("model").read_bytes() == bytes(1000)


def test_a_half_written_artifact_does_not_exist_for_anybody_and_blocks_nobody(store: ArtifactStore) -> None:
    for name in (MARKER, "model"):
        store.storage.replace(f"training/{KEY}/otherhost-1-abc/{name}", b"half")
    assert store.find("training", KEY) is None
    assert store.refs() == []
    ref = publish(store, b"whole")
    assert store.open(ref).path("model").read_bytes() == b"whole"
    remove_leftovers(store, find_leftovers(store, older_than=-60))
    assert {file.path.split("/")[2].split("-")[0] for file in store.storage.find("training")} != {"otherhost"}
    assert faults(store) == []


@pytest.mark.parametrize("days", [-1, 1, -400, 400])
def test_a_server_whose_clock_is_wrong_loses_nothing_to_the_sweep(
    remote: ArtifactStore, proxy: FaultyProxy, days: int
) -> None:
    proxy.skew = timedelta(days=days)
    remote.storage.replace(f"training/{KEY}/otherhost-1-abc/half", b"another machine is writing this")
    reading = remote.open(publish(remote, b"old"))
    publish(remote, b"new", replace=True)
    assert find_leftovers(remote) == [], "all of it is of this minute, by the server's own clock"
    forget_downloads()
    assert reading.path("model").read_bytes() == b"old"
    assert {leftover.path.split("/")[2].split("-")[0] for leftover in find_leftovers(remote, older_than=-60)} == {
        "otherhost"
    }, "attempts of living processes of this machine stay at any age"


@pytest.mark.parametrize("days", [-400, 400])
def test_a_manifest_of_the_past_or_the_future_is_read_like_any_other_and_swept_by_nobody(
    store: ArtifactStore, days: int
) -> None:
    ref = publish(store, b"model")
    manifest = store.open(ref).manifest
    when = datetime.now(UTC) + timedelta(days=days)
    changed = manifest.model_copy(update={"created_at": when})
    store.storage.replace(f"training/{KEY}/manifest.json", changed.model_dump_json().encode())
    assert store.find("training", KEY) == ref
    remove_leftovers(store, find_leftovers(store, older_than=-60))
    assert faults(store) == []
    assert store.open(ref).path("model").read_bytes() == b"model"


def test_an_attempt_from_the_future_of_a_mounted_disk_is_no_leftover(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    store.storage.replace(f"training/{KEY}/otherhost-1-abc/half", b"half")
    os.utime(tmp_path / f"training/{KEY}/otherhost-1-abc/half", (4e9, 4e9))
    assert find_leftovers(store) == []


def test_sweeping_while_a_run_reads_takes_nothing_from_it(store: ArtifactStore) -> None:
    reading = store.open(publish(store, b"old"))
    publish(store, b"new", replace=True)
    forget_downloads()
    remove_leftovers(store, find_leftovers(store))
    assert reading.path("model").read_bytes() == b"old"
    assert store.open(reading.ref).path("model").read_bytes() == b"new"
