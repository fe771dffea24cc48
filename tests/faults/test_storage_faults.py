"""Full disks, flipped bits, half-written artifacts, wrong clocks, and sweeping while somebody reads."""

import errno
import json
import logging
import os
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prefect import flow
from safetensors.numpy import save_file

from flows.stages import Run, flow_store
from gif_core.artifacts import (
    ArtifactStore,
    FileDamagedError,
    Storage,
    cache_folder,
    check_artifacts,
    condemning,
    find_leftovers,
    list_runs,
    remove_leftovers,
)
from gif_core.artifacts.attempts import MARKER, this_host
from gif_core.artifacts.errors import DiskFullError
from gif_core.artifacts.records import seal
from gif_core.runtime import JsonLines, create_matrix, log_fields
from gif_core.training import TrainingLogs, TrainingReport
from schemas.artifacts import ArtifactRef, RunRecord
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName
from tests.faults.conftest import Act
from tests.faults.proxy import FaultyProxy

KEY = "a" * 64
MENDED = {"ingestion": "reused", "embedding": "computed", "separation": "computed"}


def publish(store: ArtifactStore, content: bytes, *, replace: bool = False) -> ArtifactRef:
    with store.draft(store.ref("training", KEY), {}, {}) as draft:
        (draft.folder / "model").write_bytes(content)
        return store.publish(draft, replace=replace)


def faults(store: ArtifactStore) -> list[str]:
    return [check.fault for check in check_artifacts(store, store.refs()) if check.fault]


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


@pytest.mark.parametrize("library", ["duckdb", "safetensors", "pyarrow", "tensorboard", "mapped"])
def test_a_full_disk_that_a_library_meets_is_said_in_the_same_words(small_disk: Path, library: str) -> None:
    store, values = ArtifactStore(str(small_disk / "store")), np.random.default_rng(0).random((1024, 1024), np.float32)
    ref = publish(store, b"old")

    def write() -> None:
        with store.draft(store.ref("training", KEY), {}, {}) as draft:
            if library == "duckdb":
                with duckdb.connect(str(draft.folder / "table")) as database:
                    database.from_arrow(pa.table({"value": values.ravel()})).create("values_of")
            elif library == "safetensors":
                save_file({"values": values}, draft.folder / "model")
            elif library == "pyarrow":
                pq.write_table(pa.table({"value": values.ravel()}), draft.folder / "table")
            elif library == "tensorboard":
                with TrainingLogs(draft.folder, wandb=None, name="") as logs:
                    for step in range(2**16):
                        logs.add(TrainingReport(step, 2**16, 0, {"loss": 1.0, "val_accuracy": 0.5}))
            else:
                create_matrix(draft.folder / "matrix", "values", *values.shape)[:] = values

    with pytest.raises(DiskFullError, match=r"the disk of .* is full: .*run again"):
        write()
    assert store.open(ref).path("model").read_bytes() == b"old"
    assert find_leftovers(store, older_than=-60) == []


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


def flip_a_bit(store: ArtifactStore, ref: ArtifactRef, name: str = "model") -> None:
    """Damage a stored file where nobody sees it but who reads all of it; on a disk, in all places that are linked."""
    path = f"{ref.stage}/{ref.key}/{store.open(ref).stored(name).path}"
    content = bytearray(store.storage.read(path))
    content[len(content) // 2] ^= 1
    local = store.storage.local_path(path)
    local.write_bytes(content) if local else store.storage.replace(path, bytes(content))
    forget_downloads()


def test_a_flipped_bit_is_found_by_reading_and_by_verifying_and_condemns_nothing(store: ArtifactStore) -> None:
    ref = publish(store, bytes(1000))
    flip_a_bit(store, ref)
    with pytest.raises(FileDamagedError, match=r"sha256.*rebuild it with 'gif run --refresh training'"):
        store.open(ref).path("model")
    assert len(faults(store)) == 1
    assert store.find("training", KEY) == ref, "whoever only reads leaves everything as it is"


def test_what_is_said_of_a_flipped_bit_in_one_of_many_files_names_the_run(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    flip_a_bit(store, publish(store, bytes(1000)))
    lines = logging.FileHandler(tmp_path / "lines")
    lines.setFormatter(JsonLines())
    logging.getLogger("gif_core").addHandler(lines)
    try:
        with log_fields(run="r1"), pytest.raises(FileDamagedError):
            store.open(store.ref("training", KEY)).paths()
    finally:
        logging.getLogger("gif_core").removeHandler(lines)
        lines.close()
    (line,) = (tmp_path / "lines").read_text().splitlines()
    assert json.loads(line)["run"] == "r1", "files are read in threads"


def test_a_run_puts_a_damaged_artifact_out_of_use_and_the_next_one_publishes_it_again(store: ArtifactStore) -> None:
    ref = publish(store, bytes(1000))
    flip_a_bit(store, ref)
    for _ in ("one reader", "another"):
        with pytest.raises(FileDamagedError, match="it is now marked as damaged: run again"), condemning(store):
            store.open(ref).path("model")
    assert store.find("training", KEY) is None
    remove_leftovers(store, find_leftovers(store, older_than=-60))
    assert store.find("training", KEY) is None, "no sweep brings it back"
    publish(store, bytes(1000))
    assert store.find("training", KEY) == ref
    assert store.open(ref).path("model").read_bytes() == bytes(1000)
    assert faults(store) == []


def test_a_reader_of_the_old_files_condemns_nothing_that_was_made_again_meanwhile(store: ArtifactStore) -> None:
    ref = publish(store, bytes(1000))
    flip_a_bit(store, ref)
    reading = store.open(ref)
    publish(store, b"new", replace=True)
    with pytest.raises(FileDamagedError), condemning(store):
        reading.path("model")
    assert store.find("training", KEY) == ref
    assert [file.path for file in store.storage.find("training") if "damaged-" in file.path] == []


def test_an_artifact_that_shares_the_damaged_file_is_put_out_of_use_too_and_one_with_a_whole_copy_is_not(
    store: ArtifactStore,
) -> None:
    base = publish(store, bytes(1000))
    with store.draft(store.ref("training", "b" * 64), {}, {}) as draft:
        draft.carry(store.open(base), ["model"])
        grown = store.publish(draft)
    flip_a_bit(store, grown)
    with pytest.raises(FileDamagedError), condemning(store):
        store.open(grown).path("model")
    assert store.find("training", grown.key) is None
    is_linked = store.storage.local_path("") is not None
    assert (store.find("training", KEY) is None) == is_linked


def test_bytes_that_were_damaged_on_their_way_are_fetched_again_and_condemn_nothing(
    remote: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = publish(remote, bytes(1000))
    forget_downloads()
    download, times = type(remote.storage).download, []

    def damaged_once(storage: Storage, path: str, target: Path) -> str:
        times.append(path)
        return download(storage, path, target) if len(times) > 1 else "0" * 64

    monkeypatch.setattr(type(remote.storage), "download", damaged_once)
    with condemning(remote):
        assert remote.open(ref).path("model").read_bytes() == bytes(1000)
    assert len(times) == 2
    assert remote.find("training", KEY) == ref


@flow(name="some stages", validate_parameters=False, persist_result=False)
def run_some(config: RunConfig, selected: Sequence[StageName], refresh: Sequence[StageName] = ()) -> RunRecord:
    with flow_store(config) as store:
        return Run.begin(store, config, selected).go_through(config, selected, refresh)


@pytest.mark.usefixtures("prefect")
def test_a_run_that_meets_a_flipped_bit_makes_that_stage_again_and_what_follows_is_not_out_of_date(
    tiny: RunConfig,
) -> None:
    store = ArtifactStore(tiny.store)
    first = run_some(tiny, STAGES[:3])
    flip_a_bit(store, store.ref("embedding", first.stages["embedding"].key), "vectors.parquet")
    again = run_some(tiny, STAGES[:3], refresh=["separation"])
    assert {stage: done.action for stage, done in again.stages.items()} == MENDED
    assert faults(store) == []
    assert {done.action for done in run_some(tiny, STAGES[:3]).stages.values()} == {"reused"}


@pytest.mark.usefixtures("prefect")
def test_a_run_that_meets_a_flipped_bit_where_it_counts_the_faces_makes_them_again(tiny: RunConfig) -> None:
    """The flow itself counts them, before a stage that leads to training."""
    store = ArtifactStore(tiny.store)
    first = run_some(tiny, STAGES[:5])
    flip_a_bit(store, store.ref("ingestion", first.stages["ingestion"].key), "identities.parquet")
    again = run_some(tiny, STAGES[:5], refresh=["embedding"])
    assert [done.action for done in again.stages.values()] == ["computed", "computed", "reused", "reused", "reused"]
    assert faults(store) == []


@pytest.mark.usefixtures("prefect")
def test_a_stage_alone_fails_on_a_flipped_bit_before_it_and_the_next_run_completes(tiny: RunConfig) -> None:
    store = ArtifactStore(tiny.store)
    first = run_some(tiny, STAGES[:2])
    flip_a_bit(store, store.ref("embedding", first.stages["embedding"].key), "vectors.parquet")
    with pytest.raises(FileDamagedError, match="it is now marked as damaged: run again"):
        run_some(tiny, ["separation"])
    assert list_runs(store)[0].state == "failed"
    again = run_some(tiny, STAGES[:3])
    assert {stage: done.action for stage, done in again.stages.items()} == MENDED


def test_a_half_written_artifact_does_not_exist_for_anybody_and_blocks_nobody(store: ArtifactStore) -> None:
    for name in (MARKER, "model"):
        store.storage.replace(f"training/{KEY}/otherhost-1-abc/{name}", b"half")
    assert store.find("training", KEY) is None
    assert store.refs() == []
    ref = publish(store, b"whole")
    assert store.open(ref).path("model").read_bytes() == b"whole"
    remove_leftovers(store, find_leftovers(store, older_than=-60))
    left = {file.path.split("/")[2].split("-")[0] for file in store.storage.find("training")}
    assert left == {"manifest.json", this_host()}
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
    store.storage.replace(f"training/{KEY}/manifest.json", seal(changed))
    assert store.find("training", KEY) == ref
    remove_leftovers(store, find_leftovers(store, older_than=-60))
    assert faults(store) == []
    assert store.open(ref).path("model").read_bytes() == b"model"


def test_an_attempt_from_the_future_of_a_mounted_disk_is_no_leftover(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    store.storage.replace(f"training/{KEY}/otherhost-1-abc/half", b"half")
    os.utime(tmp_path / f"training/{KEY}/otherhost-1-abc/half", (4e9, 4e9))
    assert find_leftovers(store) == []


def test_sweeping_while_a_run_reads_takes_nothing_from_it(store: ArtifactStore, act: Act) -> None:
    assert act("publish", store, 1000).wait(60) == 0, "nobody lives whose attempt this is"
    forget_downloads()
    reader = act("read", store)
    assert reader.stdout
    old = reader.stdout.readline()
    ref = publish(store, b"new", replace=True)
    remove_leftovers(store, find_leftovers(store))
    assert reader.communicate("go on\n", timeout=60)[0] == old
    assert store.open(ref).path("model").read_bytes() == b"new"
    remove_leftovers(store, find_leftovers(store, older_than=-60))
    assert len(list(store.storage.find("training"))) == 2, "a day later nothing is left of the old one"
