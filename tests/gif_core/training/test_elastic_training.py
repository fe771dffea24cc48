"""Machines that come and go: who is left goes on."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gif_core.training import open_checkpoints
from schemas.training import TrainingJob
from tests.conftest import free_port
from tests.gif_core.training.training_jobs import BATCH, IMAGES, PROJECT, files, make_job

__all__ = ["files"]
EPOCHS = 150


@contextmanager
def machine(job: TrainingJob, folder: Path, name: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """An agent of torchrun with one process, in a group of its own; what it says is in a log."""
    (folder / "job.json").write_text(job.model_dump_json())
    meeting = ["--nnodes=1:2", "--rdzv-id=test", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"]
    command = [*meeting, "--nproc-per-node=1", "--max-restarts=3", "-m", "gif_core.training.worker", "job.json"]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_a_machine_that_is_told_to_end_leaves_the_others_training_to_the_end(
    files: Path, tmp_path: Path, wait: Callable[..., None]
) -> None:
    port, job = free_port(), make_job(files, tmp_path, {"epochs": EPOCHS}, checkpoint_steps=None)
    with machine(job, tmp_path, "stays", port) as stays:
        wait(lambda: listens(port), seconds=60, what="a meeting place", log=tmp_path / "stays.log")
        with machine(job, tmp_path, "leaves", port) as leaves:
            logs = [tmp_path / f"{name}.log" for name in ("stays", "leaves")]
            told = '"step": 10,'
            wait(lambda: any(told in log.read_text() for log in logs), seconds=200, what="step 10", log=logs[0])
            os.killpg(leaves.pid, signal.SIGTERM)
            leaves.wait(60)
        assert stays.wait(300) == 0, (tmp_path / "stays.log").read_text()[-3000:]
    said = (tmp_path / "stays.log").read_text()
    assert "another process was asked to stop" in said
    assert "training goes on after step" in said
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    assert checkpoint.state.step == IMAGES // BATCH * EPOCHS
