"""Running a module of the core under torchrun, from a task."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gif_core.processes import FAULT, STARTED_BY
from schemas.errors import GifError
from schemas.execution import ExecutionConfig

logger = logging.getLogger(__name__)
PATIENCE = 10.0
"""Seconds that processes have to end by themselves when they are told to."""


def count_processes(execution: ExecutionConfig) -> int:
    """As many as configured, else one for each GPU, else one."""
    gpus = torch.cuda.device_count() if execution.device in ("auto", "cuda") else 0
    return execution.processes or max(gpus, 1)


def rendezvous_options(execution: ExecutionConfig, name: str) -> list[str]:
    """Options with which the machines of a job find each other, and start again together when one of them fails."""
    restarts = f"--max-restarts={execution.restarts}"
    if execution.nodes == "1":
        return ["--standalone", restarts]
    if execution.rendezvous is None:
        raise GifError(
            f"execution.nodes={execution.nodes} needs execution.rendezvous: the host:port of one of the machines, "
            "the same on all of them"
        )
    meeting = [f"--rdzv-id={name}", "--rdzv-backend=c10d", f"--rdzv-endpoint={execution.rendezvous}"]
    return [f"--nnodes={execution.nodes}", *meeting, restarts]


def run_module(
    module: str, arguments: Sequence[str], processes: int, options: Sequence[str] = ("--standalone",)
) -> Iterator[dict[str, Any]]:
    """Start the module in so many processes and give the JSON objects that it prints, a line each.

    Whatever ends this generator ends the processes: an error, a cancelled run, or the death of this process.
    """
    command = [sys.executable, "-m", "torch.distributed.run", *options, f"--nproc-per-node={processes}"]
    threads = max(1, (os.cpu_count() or 1) // processes)
    environment = {**os.environ, STARTED_BY: str(os.getpid())}
    environment.setdefault("OMP_NUM_THREADS", str(threads))
    process = subprocess.Popen(
        [*command, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    said: deque[str] = deque(maxlen=40)
    try:
        yield from _objects(process, said)
        if process.wait():
            raise RuntimeError(f"{module} failed under torchrun:\n" + "".join(said))
    finally:
        _end(process)


def _objects(process: subprocess.Popen[str], said: deque[str]) -> Iterator[dict[str, Any]]:
    for line in process.stdout or ():
        if line.startswith("{"):
            told = json.loads(line)
            if FAULT in told:
                raise GifError(told[FAULT])
            yield told
        else:
            said.append(line)
            logger.info("%s", line.rstrip())


def _end(process: subprocess.Popen[str]) -> None:
    """Tell the group to end, wait, and end it."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        os.killpg(process.pid, sign)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            continue
    if process.stdout:
        process.stdout.close()
