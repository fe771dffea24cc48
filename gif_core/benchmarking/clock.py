"""Time by phases: of the host on a CPU, of the device's queue on a GPU."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from gif_core.runtime import runs_behind


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Wall-clock seconds of a call and of what it asks the device for."""
    synchronise(device)
    started = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - started


def processor_seconds(work: Callable[[], object], *, at_least: float) -> float:
    """Mean processor time of a call that computes in one thread, which other programs affect less than the clock."""
    work()
    began, count = time.process_time(), 0
    while not count or time.process_time() - began < at_least:
        work()
        count += 1
    return (time.process_time() - began) / count


def seconds_per_call(work: Callable[[], object], device: torch.device, *, at_least: float, warm_up: int = 1) -> float:
    """Mean seconds of a call that is repeated for `at_least` seconds."""
    for _ in range(warm_up):
        work()
    synchronise(device)
    started, count = time.perf_counter(), 0
    while not count or time.perf_counter() - started < at_least:
        work()
        count += 1
    synchronise(device)
    return (time.perf_counter() - started) / count


@dataclass
class Clock:
    """Names what the time since the last mark went to.

    On a GPU a mark is an event in its queue: the phases are those of the device, and the host does not wait for them.
    """

    device: torch.device
    marks: list[tuple[str, Any]] = field(default_factory=list)

    def mark(self, phase: str) -> None:
        """The time since the last mark was spent on `phase`."""
        if not runs_behind(self.device):
            self.marks.append((phase, time.perf_counter()))
            return
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        self.marks.append((phase, event))

    def restart(self) -> None:
        """Forget what was measured; the next phase begins now."""
        self.marks.clear()
        self.mark("")

    def spent(self) -> dict[str, float]:
        """Seconds by phase since the last restart."""
        synchronise(self.device)
        seconds: Counter[str] = Counter()
        for (_, before), (phase, after) in zip(self.marks, self.marks[1:], strict=False):
            seconds[phase] += before.elapsed_time(after) / 1e3 if runs_behind(self.device) else after - before
        return dict(seconds)
