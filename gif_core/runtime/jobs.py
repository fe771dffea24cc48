"""Jobs that run in this process, or in several processes under torchrun: one launcher and one worker `main` for all."""

import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from gif_core.runtime.connections import end_silent_connections
from gif_core.runtime.devices import pick_device
from gif_core.runtime.process_group import ProcessGroup, join_processes, leave_processes
from gif_core.runtime.torchrun import STANDALONE, run_module
from gif_core.runtime.workers import describe_fault, end_with_parent
from schemas.base import Job
from schemas.errors import GifError

AnyJob = TypeVar("AnyJob", bound=Job)
Step = TypeVar("Step")
Stopping = Callable[[], bool]


@dataclass(frozen=True)
class JobWorker(Generic[AnyJob, Step]):
    """How the jobs of a stage are run: `run` yields steps, which are dataclasses of plain values."""

    module: str
    """What torchrun starts; it calls `main`."""
    job_type: type[AnyJob]
    step_type: type[Step]
    run: Callable[[AnyJob, ProcessGroup, Stopping], Generator[Step, None, None]]
    stops_gracefully: bool = False
    """Whether `run` asks if it should stop; other jobs are ended by SIGTERM at once."""
    passing: tuple[type[GifError], ...] = ()
    """Faults after which the stage is tried again: they are raised by `run_anywhere` as what they are."""

    def run_anywhere(
        self, job: AnyJob, folder: Path, *, processes: int, options: Sequence[str] = (STANDALONE,)
    ) -> Generator[Step, None, None]:
        """Run the job in this process, or, for several of them or several machines, under torchrun.

        Closing the generator ends all processes. `folder` gets the file that describes the job to them.
        """
        if processes == 1 and STANDALONE in options:
            yield from self.run(job, ProcessGroup(pick_device(job.device)), lambda: False)
            return
        folder.mkdir(exist_ok=True)
        path = folder / "job.json"
        path.write_text(job.model_dump_json())
        for fields in run_module(self.module, [str(path)], processes, options, self.passing):
            yield self.step_type(**fields)

    def main(self) -> None:
        """One process under torchrun; the first reports the steps, a line of JSON each."""
        end_with_parent()
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        stopping = StopSignal() if self.stops_gracefully else lambda: False
        job = self.job_type.model_validate_json(Path(sys.argv[1]).read_text())
        try:
            group = join_processes(job.device, patience=job.process_timeout)
            if group.spans_machines:
                group.any(False)  # all connections exist when this has gone around
                end_silent_connections(job.lost_after)
            for step in self.run(job, group, stopping):
                if group.leads:
                    _report(asdict(step))  # type: ignore[call-overload]
        except (GifError, ValueError) as error:  # another attempt of torchrun would meet it again
            _report(describe_fault(error))
        except Exception:  # leaving the group could wait for a process that is gone
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        finally:
            leave_processes()


class StopSignal:
    """True as soon as this process has received SIGTERM."""

    def __init__(self) -> None:
        """Listen from now on."""
        self.received = False
        signal.signal(signal.SIGTERM, self._receive)

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.received

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True


def _report(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
