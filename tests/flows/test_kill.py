"""kill -9 in the middle of any stage: nothing published is lost, and the same command carries on."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import yaml

from gif_core.artifacts import ArtifactStore, check_artifacts, find_leftovers, list_runs, remove_leftovers
from gif_core.artifacts.attempts import MARKER
from schemas.files import MANIFEST_FILE
from schemas.stages import STAGES, StageName

GIF = str(Path(sys.executable).with_name("gif"))


def start(folder: Path, **settings: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "GIF_STORE": str(folder / "store"), **settings}
    with (folder / "gif.log").open("wb") as log:
        return subprocess.Popen(
            [GIF, "run", "--config", "run.yaml"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def kill_when_it_begins(stage: StageName, store: Path, process: BaseProcess) -> None:
    """End the process at the moment the stage is seen to write, or to have written."""
    end = time.monotonic() + 120
    while process.is_alive() and not any(
        list(store.glob(f"{stage}/*/{name}")) for name in (f"*/{MARKER}", MANIFEST_FILE)
    ):
        assert time.monotonic() < end, f"{stage} did not begin"
        time.sleep(0.001)
    assert process.exitcode in (None, 0)
    process.kill()
    process.join()


def kill_in(stage: StageName, store: Path, start: Callable[[], BaseProcess]) -> None:
    """Kill a run in the middle of a stage; a kill that came too late is repeated, as if the stage had never begun."""
    for _ in range(5):
        kill_when_it_begins(stage, store, start())
        if not list(store.glob(f"{stage}/*/{MANIFEST_FILE}")):
            return
        for made in STAGES[STAGES.index(stage) :]:
            shutil.rmtree(store / made, ignore_errors=True)
    pytest.fail(f"no kill came before {stage} was published")


def test_a_kill_in_any_stage_loses_nothing_and_the_same_command_completes(
    tmp_path: Path, start_gif: Callable[..., BaseProcess], tiny_settings: dict[str, object]
) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(tiny_settings))
    store = ArtifactStore(str(tmp_path / "store"))
    command = ("run", "--config", str(tmp_path / "run.yaml"), "--set", f"store={tmp_path / 'store'}")
    for number, stage in enumerate(STAGES):
        kill_in(stage, tmp_path / "store", lambda: start_gif(*command))
        assert {ref.stage for ref in store.refs()} == set(STAGES[:number])
        assert [check for check in check_artifacts(store, store.refs()) if check.fault] == []
        assert (list_runs(store)[0].state, list_runs(store)[0].current) == ("interrupted", stage)

    last = start_gif(*command)
    last.join(300)
    assert last.exitcode == 0
    assert [check for check in check_artifacts(store, store.refs()) if check.fault] == []
    record = list_runs(store)[0]
    assert {stage for stage, done in record.stages.items() if done.action == "reused"} == set(STAGES[:-1])

    leftovers = find_leftovers(store)
    attempts = [leftover.path for leftover in leftovers if not Path(leftover.path).name.startswith(".")]
    assert {path.split("/")[0] for path in attempts} == set(STAGES) - {"ingestion"}, "ingestion resumes its draft"
    remove_leftovers(store, leftovers)
    assert find_leftovers(store, older_than=0) == []
    assert len(store.refs()) == len(STAGES)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["separation", "training"])
def test_a_kill_of_a_run_on_an_s3_store_loses_nothing_and_the_same_command_completes(
    tmp_path: Path,
    stage: str,
    s3_url: str,
    prefect_api: str,
    tiny_settings: dict[str, object],
    wait: Callable[..., None],
) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(tiny_settings))
    store, settings = ArtifactStore(s3_url), {"GIF_STORE": s3_url, "PREFECT_API_URL": prefect_api}

    def has_begun() -> bool:
        markers = (tmp_path / "cache" / "drafts").glob(f"*/{MARKER}")
        with suppress(FileNotFoundError):  # of a stage that has just ended
            return any(marker.read_text().startswith(f"{stage}/") for marker in markers)
        return False

    process = start(tmp_path, **settings)
    wait(has_begun, seconds=180, what=stage, log=tmp_path / "gif.log")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list_runs(store)[0].state == "interrupted"
    assert [check for check in check_artifacts(store, store.refs()) if check.fault] == []
    assert start(tmp_path, **settings).wait(300) == 0, (tmp_path / "gif.log").read_text()
    assert {ref.stage for ref in store.refs()} == set(STAGES)
    assert [check for check in check_artifacts(store, store.refs()) if check.fault] == []
    remove_leftovers(store, find_leftovers(store))
    assert [path for kind in ("drafts", "partial") for path in (tmp_path / "cache" / kind).glob("*")] == []
    assert list(store.storage.find("leases")) == []


def descendants(process: int) -> set[int]:
    """All living processes below this one."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()[1:]]
    found = {process}
    for _ in pairs:
        found |= {child for child, parent in pairs if parent in found}
    return found - {process}


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_killed_run_takes_the_server_it_started_with_it(
    tmp_path: Path, tiny_settings: dict[str, object], wait: Callable[..., None]
) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(tiny_settings))
    process = start(tmp_path, PREFECT_HOME=str(tmp_path / "prefect"))
    wait(lambda: (tmp_path / "store" / "runs").exists(), seconds=180, what="a run", log=tmp_path / "gif.log")
    children = descendants(process.pid)
    assert children
    process.kill()
    process.wait()
    wait(lambda: not any(map(is_running, children)), seconds=30, what="the end of the server")
