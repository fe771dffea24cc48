"""The host of a GPU waits for nothing in a steady step of training, whatever the head and the number of processes.

Without a GPU the steps run on a pretended one (`tests/pretend_gpu.py`), in processes of their own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from gif_core.runtime import ProcessGroup
from tests.gif_core.training.counting_waits import CASES, IDENTITIES, SHARED_CASES, train

pytestmark = pytest.mark.usefixtures("one_thread")
PROJECT = Path(__file__).parents[3]
ALONE = ProcessGroup(torch.device("cpu"))


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, write_shard: Callable[..., Path]) -> list[dict[str, Any]]:
    """What each of two processes finds, `alone` and `together`."""
    folder, rng = tmp_path_factory.mktemp("faces"), np.random.default_rng(0)
    images = rng.integers(0, 255, (IDENTITIES, 112, 112, 3), np.uint8)
    rows = [(row, f"{row}.bmp", cv2.imencode(".bmp", image)[1].tobytes()) for row, image in enumerate(images)]
    write_shard(folder / "a.arrow", rows, len(rows))
    running = [start(rank, folder) for rank in range(2)]
    said = [process.communicate(timeout=300)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    return [json.loads(text.splitlines()[-1]) for text in said]


def start(rank: int, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.gif_core.training.counting_waits", str(rank), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def alone(counted: list[dict[str, Any]]) -> dict[str, Any]:
    """What single processes find."""
    return counted[0]["alone"] | counted[1]["alone"]


@pytest.mark.parametrize("case", [*CASES, "loader"])
def test_the_host_waits_for_nothing_in_a_steady_step(alone: dict[str, Any], case: str) -> None:
    assert alone[case]["waits"] == {}


@pytest.mark.parametrize("case", SHARED_CASES)
def test_nor_does_it_with_two_processes_which_train_as_one_does(
    counted: list[dict[str, Any]], alone: dict[str, Any], case: str
) -> None:
    one, other = (found["together"][case] for found in counted)
    assert one["waits"] == other["waits"] == {}
    assert one["losses"] == other["losses"]
    if "in parts" not in case and "partial_fc" not in case:  # which differ: parts are other ones, and drawn rows
        assert one["losses"][:2] == pytest.approx(alone[case]["losses"], rel=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_a_step_without_a_finite_gradient_is_skipped_without_asking(alone: dict[str, Any], case: str) -> None:
    assert alone[case]["skipped"] == 1
    assert alone[case]["changed"] == []


@pytest.mark.parametrize("case", ["gif", "gif, rows in host memory", "gif, adamw", "partial_fc"])
def test_fused_optimizers_and_rows_on_the_device_train_as_the_cpu_does(alone: dict[str, Any], case: str) -> None:
    assert alone[case]["losses"] == pytest.approx(train(case, ALONE)["losses"], rel=1e-5)
