"""Separation from file to file: killed and resumed, streamed from disk, shared by several processes."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from gif_core.runtime import ProcessGroup, ShardedRows, create_matrix, map_matrix, own_range
from gif_core.separation import NAME, VECTORS, run_job, separated
from gif_core.separation import checkpoints as checkpoints_module
from gif_core.separation import worker as separation_worker
from gif_core.separation.checkpoints import STEPS, RowCheckpoints, collect_rows
from gif_core.separation.worker import open_checkpoints, open_rows
from schemas.separation import SeparationConfig, SeparationJob

pytestmark = pytest.mark.usefixtures("one_thread")
PROJECT = Path(__file__).parents[3]
CONFIG = SeparationConfig(batch_size=64, epochs=6, target_gap=None)
COUNT, DIMENSION = 301, 24
CHECKPOINTS = "checkpoints/separation/test"


def vectors() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return (2 + rng.normal(size=(COUNT, DIMENSION)) * np.linspace(1, 0.1, DIMENSION)).astype(np.float32)


def write_job(
    folder: Path, config: SeparationConfig = CONFIG, *, seconds: float = 0, together: bool = False
) -> SeparationJob:
    folder.mkdir(exist_ok=True)
    create_matrix(folder / "start.safetensors", VECTORS, COUNT, DIMENSION)[:] = vectors()
    create_matrix(folder / "result.safetensors", NAME, COUNT, DIMENSION)
    job = SeparationJob(
        config=config,
        seed=3,
        device="cpu",
        vectors=str(folder / "start.safetensors"),
        result=str(folder / "result.safetensors"),
        store=str(folder / "store"),
        checkpoints=CHECKPOINTS,
        checkpoint_seconds=seconds,
        together=together,
    )
    (folder / "job.json").write_text(job.model_dump_json())
    return job


def result(job: SeparationJob) -> NDArray[np.float32]:
    found: NDArray[np.float32] = load_file(job.result)[NAME]
    return found


def epochs_saved(job: SeparationJob) -> int:
    """The epochs of the newest checkpoint, with that before the first step."""
    found = open_checkpoints(job).newest()
    return len(found.state.values[STEPS]) if found else 0


def command(processes: int, folder: Path) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    prefix = launcher if processes > 1 else []
    return [sys.executable, *prefix, "-m", "gif_core.separation.worker", str(folder / "job.json")]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}


def test_a_matrix_file_is_a_safetensors_file(tmp_path: Path) -> None:
    matrix = create_matrix(tmp_path / "m.safetensors", "x", 5, 3)
    matrix[:] = np.arange(15).reshape(5, 3)
    matrix.flush()
    assert np.array_equal(load_file(tmp_path / "m.safetensors")["x"], np.arange(15).reshape(5, 3))
    assert np.array_equal(map_matrix(tmp_path / "m.safetensors", "x")[2:4], [[6, 7, 8], [9, 10, 11]])
    with (tmp_path / "m.safetensors").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ValueError, match="one whole float32 matrix"):
        map_matrix(tmp_path / "m.safetensors", "x")


def test_every_row_has_one_owner() -> None:
    ranges = [own_range(301, rank, 4) for rank in range(4)]
    assert [row for first, end in ranges for row in range(first, end)] == list(range(301))


def test_a_job_gives_what_the_core_gives(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    steps = list(run_job(job))
    after, expected = separated(torch.from_numpy(vectors()), CONFIG, seed=3)
    assert steps == expected
    assert np.array_equal(result(job), after.numpy())


def test_an_interrupted_run_goes_on_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, parts = write_job(tmp_path / "whole"), write_job(tmp_path / "parts")
    expected = list(run_job(whole))
    for epoch in (0, 2, 4):
        for step in run_job(parts):
            if step.epoch == epoch:
                break
    assert epochs_saved(parts) == 1 + 4
    assert list(run_job(parts)) == expected
    assert np.array_equal(result(parts), result(whole))
    assert len(list((tmp_path / "parts" / "store").rglob("*.safetensors"))) == 1


def test_what_is_resumed_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = write_job(tmp_path)
    list(run_job(job))
    monkeypatch.setattr(
        "gif_core.separation.descent._run_epoch", lambda *_, **__: pytest.fail("an epoch was run again")
    )
    assert len(list(run_job(job))) == CONFIG.epochs + 1


def test_checkpoints_are_no_more_frequent_than_asked_for(tmp_path: Path) -> None:
    job = write_job(tmp_path, seconds=3600)
    list(run_job(job))
    assert not epochs_saved(job)


def test_a_state_without_its_json_does_not_count(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    checkpoints = open_checkpoints(job)
    rows = open_rows(job, 0, 1)
    before = rows.local.clone()
    checkpoints.write(
        checkpoints.new_folder(3), "rows-000000000000.safetensors", {NAME: before + 1}, {"first_row": "0"}
    )
    assert RowCheckpoints(checkpoints, ProcessGroup(torch.device("cpu"))).load(rows) == []
    assert torch.equal(rows.local, before)


def test_a_killed_process_is_carried_on_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"epochs": 60})
    whole, killed = write_job(tmp_path / "whole", config, seconds=3600), write_job(tmp_path / "killed", config)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path / "killed" / "job.json")], cwd=PROJECT, env=environment()
    )
    end = time.monotonic() + 120
    while epochs_saved(killed) < 10:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 10 <= epochs_saved(killed) < 60
    assert list(run_job(killed)) == list(run_job(whole))
    assert np.array_equal(result(killed), result(whole))


RUN = """
import sys, time
from pathlib import Path
import torch
from gif_core.separation.worker import run_job
from schemas.separation import SeparationJob
torch.set_num_threads(1)
for step in run_job(SeparationJob.model_validate_json(Path(sys.argv[1]).read_text())):
    time.sleep(0.1 if step.epoch > 30 else 0)
"""


def test_streamed_from_a_mapped_file_it_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, streamed = write_job(tmp_path / "inside"), write_job(tmp_path / "streamed")
    steps = list(run_job(inside))
    monkeypatch.setattr(separation_worker, "fits", lambda *_: False)
    rows = open_rows(streamed, 0, 1)
    rows.local[7] = 5
    assert np.array_equal(map_matrix(Path(streamed.result), NAME)[7], np.full(DIMENSION, 5)), "it lies in the file"
    assert list(run_job(streamed)) == steps
    assert np.array_equal(result(streamed), result(inside))


def test_rows_on_another_device_are_brought_there_in_chunks() -> None:
    rows = ShardedRows(torch.zeros(5000, 4), device=torch.device("meta"))
    chunks = list(rows.chunks())
    assert [start for start, _ in chunks] == [0, 2048, 4096]
    assert {chunk.device.type for _, chunk in chunks} == {"meta"}
    assert rows.local.device.type == "cpu"


def test_two_processes_under_torchrun_give_the_result_of_one(tmp_path: Path) -> None:
    alone, shared = write_job(tmp_path / "alone"), write_job(tmp_path / "shared")
    expected = list(run_job(alone))
    done = subprocess.run(
        command(2, tmp_path / "shared"), cwd=PROJECT, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [step["epoch"] for step in steps] == [step.epoch for step in expected]
    np.testing.assert_allclose([step["gap"] for step in steps], [step.gap for step in expected], atol=1e-5)
    assert steps[-1]["neighbours_kept"] == pytest.approx(expected[-1].neighbours_kept, abs=0.002)
    np.testing.assert_allclose(result(shared), result(alone), atol=2e-5)

    # The state that two processes wrote is one state: a single process goes on from it.
    checkpoint, expected_rows = open_checkpoints(shared).newest(), result(shared)
    assert checkpoint is not None
    assert len(checkpoint.names("rows-")) == 2
    collect_rows(checkpoint, Path(shared.result))
    assert np.array_equal(result(shared), expected_rows)
    again = list(run_job(shared))
    assert [step.gap for step in again] == [step["gap"] for step in steps]


def test_processes_without_a_common_disk_leave_the_result_in_their_last_checkpoint(tmp_path: Path) -> None:
    alone, together = write_job(tmp_path / "alone"), write_job(tmp_path / "together", seconds=3600, together=True)
    expected = list(run_job(alone))
    done = subprocess.run(
        command(2, tmp_path / "together"), cwd=PROJECT, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not result(together).any(), "nothing was written to a file that others would have to see"
    checkpoint = open_checkpoints(together).newest()
    assert checkpoint is not None
    steps = collect_rows(checkpoint, Path(together.result))
    assert [step["epoch"] for step in steps] == [step.epoch for step in expected]
    np.testing.assert_allclose(result(together), result(alone), atol=2e-5)


def test_rows_of_a_checkpoint_lie_in_files_of_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints_module, "FILE_BYTES", 100 * DIMENSION * 4)
    job = write_job(tmp_path)
    expected = list(run_job(job))
    checkpoint, rows = open_checkpoints(job).newest(), result(job)
    assert checkpoint is not None
    assert len(checkpoint.names("rows-")) == 4
    assert collect_rows(checkpoint, Path(job.result)) == [asdict(step) for step in expected]
    assert np.array_equal(result(job), rows)
