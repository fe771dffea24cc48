"""Modules under torchrun: what they say arrives, and they never outlive whoever asked for them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gif_core.processes import _is_running
from schemas.execution import ExecutionConfig
from tasks.torchrun import count_processes, run_module

PROJECT = Path(__file__).parents[2]
MODULE = """
import json, os, sys, time
from gif_core.processes import end_with_parent
end_with_parent(0.05)
print(json.dumps({"process": os.getpid()}), flush=True)
if sys.argv[1] == "fail":
    raise SystemExit("this one fails on purpose")
time.sleep(600)
"""
CALLER = """
import json, sys
from tasks.torchrun import run_module
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
    said.close()  # type: ignore[attr-defined]
    wait(lambda: not any(map(_is_running, processes)), seconds=20, what="the end of the processes")


def test_a_failure_is_an_error_with_what_was_said() -> None:
    with pytest.raises(RuntimeError, match="this one fails on purpose"):
        list(run_module("sleeper", ["fail"], 1))


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
