"""kill -9 in the middle of ingestion: finished shards are kept, and the end is as if nothing had happened."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gif_core.artifacts import ArtifactStore
from gif_core.ingestion import ingest
from gif_core.readers import open_reader
from schemas.files import WORK_FOLDER
from schemas.ingestion import IngestionConfig, SyntheticSource

CONFIG = IngestionConfig(
    sources=(SyntheticSource(identities=60, smallest=3, largest=9),), held_out=0.4, min_samples=4, shard_bytes=2**16
)
KEY = "b" * 64
ATTEMPT = """
import sys
from tests.gif_core.ingestion.test_resume import attempt
attempt(sys.argv[1], pause=0.02)
"""


def attempt(store_path: str, pause: float = 0.0) -> None:
    store = ArtifactStore(store_path)
    with store.draft(store.ref("ingestion", KEY), {}, {}, resume=True) as draft:
        for _ in ingest(CONFIG, [open_reader(source) for source in CONFIG.sources], draft.folder, workers=2):
            time.sleep(pause)
        store.publish(draft)


def finished(folder: Path) -> dict[str, tuple[int, int]]:
    """Shards with a journal entry: their inode and when they were written."""
    found = {}
    for entry in folder.glob(f"*/{WORK_FOLDER}/[!.]*.json"):
        shard = entry.parents[1] / f"{entry.stem}.arrow"
        found[shard.name] = (shard.stat().st_ino, shard.stat().st_mtime_ns)
    return found


def digests(store: ArtifactStore) -> dict[str, str]:
    artifact = store.open(store.ref("ingestion", KEY))
    return {name: hashlib.sha256(artifact.path(name).read_bytes()).hexdigest() for name in artifact.names()}


def kill_after(shards: int, store_path: Path) -> dict[str, tuple[int, int]]:
    """Let an ingestion run in a process of its own until so many shards are finished, then kill it."""
    process = subprocess.Popen([sys.executable, "-c", ATTEMPT, str(store_path)], cwd=Path(__file__).parents[3])
    end, found = time.monotonic() + 60, 0
    while found < shards:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.002)
        with suppress(FileNotFoundError):  # it takes over what another left, under a new name
            found = len(finished(store_path / "ingestion" / KEY))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return finished(store_path / "ingestion" / KEY)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("store")
    attempt(str(path))
    return digests(ArtifactStore(str(path)))


def test_killed_three_times_it_keeps_every_finished_shard_and_ends_with_the_same_bytes(
    tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    kept: dict[str, tuple[int, int]] = {}
    for shards in (2, 4, 7):
        now = kill_after(shards, tmp_path)
        assert kept.items() <= now.items()
        kept = now
    attempt(str(tmp_path))
    store = ArtifactStore(str(tmp_path))
    assert digests(store) == undisturbed
    artifact = store.open(store.ref("ingestion", KEY))
    for name, written in kept.items():
        assert (artifact.path(name).stat().st_ino, artifact.path(name).stat().st_mtime_ns) == written
    assert [path.name for path in (tmp_path / "ingestion" / KEY).iterdir() if path.is_dir()] == [
        artifact.manifest.files[0].path.split("/")[0]
    ]
    assert not list(tmp_path.rglob(WORK_FOLDER))


def test_a_failed_attempt_is_carried_on_by_the_same_process(tmp_path: Path, undisturbed: dict[str, str]) -> None:
    reader = open_reader(CONFIG.sources[0])
    store = ArtifactStore(str(tmp_path))
    ref = store.ref("ingestion", KEY)
    with suppress(ConnectionError), store.draft(ref, {}, {}, resume=True) as draft:
        for step in ingest(CONFIG, [reader], draft.folder):
            if step.images > step.total // 2:
                raise ConnectionError
    kept = finished(tmp_path / "ingestion" / KEY)
    assert kept
    attempt(str(tmp_path))
    assert digests(store) == undisturbed
    artifact = store.open(ref)
    assert all(artifact.path(name).stat().st_ino == inode for name, (inode, _) in kept.items())
