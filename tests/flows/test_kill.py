"""kill -9 in the middle of any stage: nothing published is lost, and the same command carries on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.runs import list_runs
from gif_core.artifacts.store import MARKER
from gif_core.artifacts.upkeep import find_leftovers, remove_leftovers, verify_artifacts
from schemas.stages import STAGES

GIF = str(Path(sys.executable).with_name("gif"))


def start(folder: Path, api: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "GIF_STORE": str(folder / "store"), "PREFECT_API_URL": api}
    with (folder / "gif.log").open("wb") as log:
        return subprocess.Popen(
            [GIF, "run", "--config", "run.yaml"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def kill_in(stage: str, folder: Path, process: subprocess.Popen[bytes]) -> None:
    """End the process at the moment the stage has begun to write."""
    end = time.monotonic() + 120
    while not list((folder / "store").glob(f"{stage}/*/*/{MARKER}")):
        assert process.poll() is None, (folder / "gif.log").read_text()
        assert time.monotonic() < end, f"{stage} did not begin"
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_kill_in_any_stage_loses_nothing_and_the_same_command_completes(
    tmp_path: Path, prefect_api: str, tiny_settings: dict[str, object]
) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(tiny_settings))
    store = ArtifactStore(str(tmp_path / "store"))
    for number, stage in enumerate(STAGES):
        kill_in(stage, tmp_path, start(tmp_path, prefect_api))
        assert {ref.stage for ref in store.refs()} == set(STAGES[:number])
        assert [check for check in verify_artifacts(store, store.refs()) if check.fault] == []
        assert (list_runs(store)[0].state, list_runs(store)[0].current) == ("interrupted", stage)

    last = start(tmp_path, prefect_api)
    assert last.wait(300) == 0, (tmp_path / "gif.log").read_text()
    assert [check for check in verify_artifacts(store, store.refs()) if check.fault] == []
    record = list_runs(store)[0]
    assert {stage for stage, done in record.stages.items() if done.action == "reused"} == set(STAGES[:-1])

    leftovers = find_leftovers(store)
    assert {leftover.path.split("/")[0] for leftover in leftovers} == set(STAGES)
    remove_leftovers(store, leftovers)
    assert find_leftovers(store, older_than=0) == []
    assert len(store.refs()) == len(STAGES)
