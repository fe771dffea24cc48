"""What is recorded of GPUs, as a driver reports them: here a program of its name that answers as it does."""

import time
from pathlib import Path

import pytest

from gif_core.runtime import GpuWatch
from gif_core.runtime.gpus import memory_of_gpus


def install_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> Path:
    """A program `nvidia-smi` that prints the content of a file."""
    state, program = folder / "memory", folder / "nvidia-smi"
    state.write_text(answer)
    program.write_text(f"#!/bin/sh\n/bin/cat {state}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return state


def test_memory_above_that_at_the_beginning_and_the_time_of_each_gpu_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = install_driver(tmp_path, monkeypatch, "500\n0\n7\n")
    began = time.monotonic()
    with GpuWatch(0.02) as gpus:
        state.write_text("1500\n3000\n8\n")
        time.sleep(0.3)
    assert gpus.peak == 3000 * 2**20
    assert gpus.gpu_seconds is not None
    assert 0.5 < gpus.gpu_seconds / (2 * (time.monotonic() - began)) <= 1


@pytest.mark.parametrize("answer", ["500\n0\n", "No devices were found\n"])
def test_gpus_that_are_not_used_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    install_driver(tmp_path, monkeypatch, answer)
    with GpuWatch(0.02) as gpus:
        time.sleep(0.1)
    assert (gpus.peak, gpus.gpu_seconds) == (None, None)


def test_a_machine_without_a_driver_has_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert memory_of_gpus() == []
    with GpuWatch(0.02) as gpus:
        pass
    assert gpus.peak is None
