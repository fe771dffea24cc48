"""Modules under torchrun: what they say arrives, and they never outlive whoever asked for them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gif_core.artifacts import StoreAwayError
from gif_core.runtime import check_elastic, count_processes, join_processes, pick_device, run_module
from gif_core.runtime.workers import _is_running
from schemas.errors import GifError
from schemas.execution import ExecutionConfig

PROJECT = Path(__file__).parents[3]
MODULE = """
import json, os, sys, time
from gif_core.artifacts.errors import StoreAwayError
from gif_core.runtime.workers import describe_fault, end_with_parent
end_with_parent(0.05)
print(json.dumps({"process": os.getpid()}), flush=True)
if sys.argv[1] == "away":
    print(json.dumps(describe_fault(StoreAwayError("the store is away"))), flush=True)
if sys.argv[1] == "fail":
    raise SystemExit("this one fails on purpose")
time.sleep(600)
"""
CALLER = """
import json, sys
from gif_core.runtime import run_module
for said in run_module("sleeper", ["sleep"], 2):
    print(json.dumps(said), flush=True)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sleeper.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{PROJECT}")


def test_leaving_the_generator_ends_all_processes(wait: Callable[..., None]) -> None:
    said = run_module("sleeper", ["sleep"], 2)
    processes = [next(said)["process"], next(said)["process"]]
    assert all(map(_is_running, processes))
    said.close()
    wait(lambda: not any(map(_is_running, processes)), seconds=20, what="the end of the processes")


def test_a_failure_is_an_error_with_what_was_said() -> None:
    with pytest.raises(RuntimeError, match="this one fails on purpose"):
        list(run_module("sleeper", ["fail"], 1))


def test_a_fault_that_may_pass_is_the_same_fault_here() -> None:
    with pytest.raises(StoreAwayError, match="the store is away"):
        list(run_module("sleeper", ["away"], 1, passing=[StoreAwayError]))


@pytest.mark.parametrize(("nodes", "batch"), [("1", 50), ("3", 50), ("2:4", 48)])
def test_a_batch_that_any_number_of_the_machines_can_share_is_accepted(nodes: str, batch: int) -> None:
    check_elastic(batch, ExecutionConfig(nodes=nodes), processes=2)


def test_a_batch_that_fewer_of_the_machines_could_not_share_is_refused_with_what_to_set() -> None:
    with pytest.raises(GifError, match=r"batch_size=512 .* 8, 12, 16: set it to a multiple of 48, such as 480 or 528"):
        check_elastic(512, ExecutionConfig(nodes="2:4"), processes=4)


@pytest.mark.slow
def test_processes_end_with_a_caller_that_is_killed(wait: Callable[..., None]) -> None:
    caller = subprocess.Popen([sys.executable, "-c", CALLER], stdout=subprocess.PIPE, text=True, cwd=PROJECT)
    assert caller.stdout is not None
    processes = [json.loads(caller.stdout.readline())["process"] for _ in range(2)]
    os.kill(caller.pid, signal.SIGKILL)
    caller.wait()
    wait(lambda: not any(map(_is_running, processes)), seconds=20, what="the end of the processes")
    caller.stdout.close()


def test_without_gpus_there_is_one_process_unless_more_are_asked_for() -> None:
    assert count_processes(ExecutionConfig(device="cpu")) == 1
    assert count_processes(ExecutionConfig(device="cpu", processes=3)) == 3


def see_gpus(monkeypatch: pytest.MonkeyPatch, gpus: int, *, apple: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_every_gpu_has_a_process_and_no_process_is_without(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    see_gpus(monkeypatch, 2)
    assert count_processes(ExecutionConfig(device=device)) == 2
    assert count_processes(ExecutionConfig(device=device, processes=1)) == 1
    with pytest.raises(GifError, match=r"execution.processes=3, but PyTorch sees 2 GPUs .* to at most 2"):
        count_processes(ExecutionConfig(device=device, processes=3))
    assert count_processes(ExecutionConfig(device="cpu", processes=3)) == 3


def test_a_process_of_torchrun_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    see_gpus(monkeypatch, 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(GifError, match=r"execution.processes=2, but PyTorch sees 1 GPU here"):
        join_processes("auto")


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    see_gpus(monkeypatch, 0)
    with pytest.raises(GifError, match=rf"execution.device={device}, but PyTorch sees no .* execution.device=cpu"):
        pick_device(device)
    with pytest.raises(GifError, match=rf"execution.device={device}, but"):
        count_processes(ExecutionConfig(device=device, processes=2))


@pytest.mark.parametrize("changes", [{"processes": 2}, {"nodes": "2", "device": "mps"}])
def test_several_processes_on_an_apple_gpu_are_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    see_gpus(monkeypatch, 0, apple=True)
    assert count_processes(ExecutionConfig()) == 1
    with pytest.raises(GifError, match="an Apple GPU serves one process alone"):
        count_processes(ExecutionConfig.model_validate(changes))
