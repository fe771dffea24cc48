"""Checkpoints that are written while the training goes on: what it waits for, and what a kill leaves."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from torch import Tensor

from gif_core.artifacts import Checkpoints, StoreAwayError
from gif_core.training import open_checkpoints, run_job
from gif_core.training.data.loader import Batch
from gif_core.training.step import Stepper
from tests.gif_core.training.training_jobs import (
    ALONE,
    PROJECT,
    assert_same_weights,
    files,
    make_job,
    result,
)

__all__ = ["files"]
SHORT = {"epochs": 2}
"""Eight steps."""
pytestmark = pytest.mark.usefixtures("one_thread")
write = Checkpoints.write
KILLED = """
import os, signal, sys, threading
from pathlib import Path
from gif_core.artifacts import Checkpoints
from gif_core.training import run_job
from schemas.training import TrainingJob
from tests.gif_core.training.training_jobs import ALONE
write, entered = Checkpoints.write, threading.Event()

def write_forever(self, folder, name, *rest):
    stored = write(self, folder, name, *rest)
    if "/000000006-" in folder and name.startswith("head"):
        entered.set()
        threading.Event().wait()
    return stored

Checkpoints.write = write_forever
for report in run_job(TrainingJob.model_validate_json(Path(sys.argv[1]).read_text()), ALONE):
    if report.step == 7:
        assert entered.wait(60)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def undisturbed(one_thread: None, files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """Weights of a training that waits for its checkpoints."""
    job = make_job(files, tmp_path_factory.mktemp("undisturbed"), SHORT)
    list(run_job(job, ALONE))
    return result(job)


def steps_of(folder: Path) -> list[int]:
    """Steps of the checkpoints that count."""
    return sorted(int(state.parent.name.partition("-")[0]) for state in folder.glob("*/state.json"))


def test_the_training_goes_on_while_a_checkpoint_is_written_and_the_next_waits_for_it(
    files: Path, tmp_path: Path, undisturbed: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is that of its step, although training has changed it since."""
    go, seen = threading.Event(), []

    def write_slowly(self: Checkpoints, folder: str, *rest: object) -> object:
        if "/000000003-" in folder:
            assert go.wait(60)
        return write(self, folder, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Checkpoints, "write", write_slowly)
    job = make_job(files, tmp_path, SHORT, background_checkpoints=True, checkpoints_kept=9)
    for report in run_job(job, ALONE):
        if report.step == 5:
            seen = steps_of(tmp_path / job.checkpoints)
            go.set()
        if report.step == 7:
            assert 3 in steps_of(tmp_path / job.checkpoints), "before the checkpoint of step 6"
    assert seen == [], "two steps were taken although none was written"
    assert steps_of(tmp_path / job.checkpoints) == [3, 6, 8]
    assert_same_weights(result(job), undisturbed, job, exactly=True)
    for folder in (tmp_path / job.checkpoints).iterdir():
        if not folder.name.startswith("000000003-"):
            (folder / "state.json").unlink()
    list(run_job(job, ALONE))
    assert_same_weights(result(job), undisturbed, job, exactly=True)


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(
    files: Path, tmp_path: Path, undisturbed: dict[str, Tensor]
) -> None:
    job = make_job(files, tmp_path / "store", SHORT, background_checkpoints=True)
    (tmp_path / "job.json").write_text(job.model_dump_json())
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "job.json")]
    killed = subprocess.run(command, cwd=PROJECT, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    folders = tmp_path / "store" / job.checkpoints
    assert list(folders.glob("000000006-*/backbone*")), "it was being written"
    newest = open_checkpoints(job).newest()
    assert newest is not None
    assert newest.state.step == 3
    list(run_job(job, ALONE))
    assert_same_weights(result(job), undisturbed, job, exactly=True)


def test_a_store_that_fails_in_the_background_fails_the_training(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreAwayError("the store is away")

    monkeypatch.setattr(Checkpoints, "write", fail)
    job = make_job(files, tmp_path, SHORT, background_checkpoints=True)
    with pytest.raises(StoreAwayError, match="the store is away"):
        list(run_job(job, ALONE))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gif-checkpoints")]


def test_a_consumer_that_leaves_finds_a_checkpoint_of_the_last_step(files: Path, tmp_path: Path) -> None:
    job = make_job(files, tmp_path, SHORT, background_checkpoints=True)
    steps = run_job(job, ALONE)
    while next(steps).step < 7:
        pass
    steps.close()
    assert steps_of(tmp_path / job.checkpoints)[-1] == 7


def test_a_fault_completes_the_checkpoint_that_is_being_written(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Stepper.take

    def fail_at_four(self: Stepper, batch: Batch) -> None:
        if self.state.step == 4:
            raise ConnectionError
        take(self, batch)

    def write_slowly(self: Checkpoints, *given: object) -> object:
        time.sleep(0.3)
        return write(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Stepper, "take", fail_at_four)
    monkeypatch.setattr(Checkpoints, "write", write_slowly)
    job = make_job(files, tmp_path, SHORT, background_checkpoints=True)
    with pytest.raises(ConnectionError):
        list(run_job(job, ALONE))
    assert steps_of(tmp_path / job.checkpoints) == [3]
