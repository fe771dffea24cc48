"""Processes of a job under torchrun: how many, how machines find each other, what they say, and how they end."""

import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Any, Final

import torch

from gif_core.runtime.devices import check_gpus, pick_device
from gif_core.runtime.rendezvous import INTERFACE, MachinesApartError, hosts_meeting, interface_of, own_address
from gif_core.runtime.workers import FAULT, KIND, STARTED_BY
from schemas.errors import GifError
from schemas.execution import ExecutionConfig

logger = logging.getLogger(__name__)
PATIENCE = 20.0
"""Seconds that processes have to end after SIGTERM: Prefect ends a cancelled run after 30."""
STANDALONE: Final = "--standalone"
"""Option of a job on this machine alone."""
MEETING: Final = "--rdzv-endpoint="
JOIN_SECONDS: Final = 600
"""Seconds that machines wait for each other until the attempt counts as failed."""
NEW_STORE: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Lets machines that start again meet at the first of those that are left, not where the one before them was."""
APART: Final = re.compile(r"\bRendezvous\w*Error\b")
"""How torchrun names the faults by which machines lose each other."""
LINES_KEPT = 200
"""Lines that a failure quotes: several processes fail together, and the cause is in the first trace of a stack."""


def count_processes(execution: ExecutionConfig) -> int:
    """As many as configured, else one for each GPU, else one; refused where the device cannot serve so many."""
    device = pick_device(execution.device)
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    processes = execution.processes or max(gpus, 1)
    check_gpus(device, processes)
    if device.type == "mps" and (processes > 1 or execution.nodes != "1"):
        raise GifError(
            f"execution.processes={processes} and execution.nodes={execution.nodes} with execution.device="
            f"{execution.device}, here mps: an Apple GPU serves one process alone, so set both to 1, or "
            "execution.device=cpu"
        )
    return processes


def check_elastic(batch_size: int, execution: ExecutionConfig, processes: int) -> None:
    """Refuse a batch that machines which come and go could not always share equally."""
    least, _, most = execution.nodes.partition(":")
    shares = [processes * machines for machines in range(int(least), int(most or least) + 1)]
    whole = math.lcm(*shares)
    if most and batch_size % whole:
        near = sorted({max(batch_size // whole, 1) * whole, -(-batch_size // whole) * whole})
        raise GifError(
            f"training.batch_size={batch_size} cannot be shared equally by each number of processes that "
            f"execution.nodes={execution.nodes} may come to, {', '.join(map(str, shares))}: set it to a multiple of "
            f"{whole}, such as {' or '.join(map(str, near))}, or set execution.nodes to one number"
        )


def rendezvous_options(execution: ExecutionConfig, name: str) -> list[str]:
    """Options with which the machines of a job find each other, and start again together when one of them fails."""
    restarts = f"--max-restarts={execution.restarts}"
    if execution.nodes == "1":
        return [STANDALONE, restarts]
    if execution.rendezvous is None:
        raise GifError(
            f"execution.nodes={execution.nodes} needs execution.rendezvous: the host:port of one of the machines, "
            "the same on all of them"
        )
    meeting = [f"--rdzv-id={name}", "--rdzv-backend=c10d", f"{MEETING}{execution.rendezvous}"]
    settings = [f"join_timeout={JOIN_SECONDS}", f"read_timeout={max(1, round(execution.lost_after))}"]
    if own := own_address(execution.rendezvous):  # torchrun would ask for names that only this machine may know
        settings.append(f"is_host={int(hosts_meeting(execution.rendezvous))}")
        meeting.append(f"--local-addr={own}")
    return [f"--nnodes={execution.nodes}", *meeting, f"--rdzv-conf={','.join(settings)}", restarts]


def run_module(
    module: str,
    arguments: Sequence[str],
    processes: int,
    options: Sequence[str] = (STANDALONE,),
    passing: Collection[type[GifError]] = (),
) -> Generator[dict[str, Any], None, None]:
    """Start the module in so many processes and yield the JSON objects that it prints, a line each.

    Whatever ends this generator ends the processes: an error, a cancelled run, or the death of this process. A fault
    that a process reports is raised here as a GifError, one that may pass as what it was there.
    """
    command = [sys.executable, "-m", "torch.distributed.run", *options, f"--nproc-per-node={processes}"]
    threads = max(1, (os.cpu_count() or 1) // processes)
    # PYTHONSAFEPATH: a folder named `tasks` or `schemas` where the run was started must not hide ours.
    environment = {**os.environ, STARTED_BY: str(os.getpid()), "PYTHONSAFEPATH": "1"}
    environment.setdefault("OMP_NUM_THREADS", str(threads))
    environment = _network(options) | environment
    process = subprocess.Popen(
        [*command, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    last_lines: deque[str] = deque(maxlen=LINES_KEPT)
    try:
        yield from _objects(process, last_lines, {kind.__name__: kind for kind in passing})
        if process.wait():
            said = "".join(last_lines)
            if STANDALONE not in options and APART.search(said):
                raise MachinesApartError(f"the machines of {module} lost each other:\n{said}")
            raise RuntimeError(f"{module} failed under torchrun:\n{said}")
    finally:
        _end(process)


def _network(options: Sequence[str]) -> dict[str, str]:
    """The network on which the machines meet: gloo would take that of the host's name, which is often loopback."""
    endpoints = [option.removeprefix(MEETING) for option in options if option.startswith(MEETING)]
    if not endpoints:
        return {}
    own = own_address(endpoints[0])
    interface = interface_of(own) if own else None
    return {NEW_STORE: "1"} | ({INTERFACE: interface} if interface else {})


def _objects(
    process: subprocess.Popen[str], last_lines: deque[str], passing: dict[str, type[GifError]]
) -> Iterator[dict[str, Any]]:
    for line in process.stdout or ():
        if line.startswith("{"):
            found = json.loads(line)
            if FAULT in found:
                raise passing.get(found.get(KIND, ""), GifError)(found[FAULT])
            yield found
        else:
            last_lines.append(line)
            logger.info("%s", line.rstrip())


def _end(process: subprocess.Popen[str]) -> None:
    """Terminate the group, wait, and kill what is left."""
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
