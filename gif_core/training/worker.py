"""Training from files to checkpoints: in the calling process, or as one of several under torchrun.

python -m torch.distributed.run --nproc-per-node 2 -m gif_core.training.worker job.json
"""

import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

from gif_core.artifacts import ArtifactStore, Checkpoints
from gif_core.images import Faces
from gif_core.runtime import ProcessGroup, describe_fault, end_with_parent, join_processes, leave_processes, map_tensor
from gif_core.tokenization import read_codes
from gif_core.training.checkpoints import check_shared, load_state, load_weights, save_state
from gif_core.training.trainer import Training, TrainingReport, begin_training
from gif_core.training.validation import prepare_validation
from schemas.errors import GifError
from schemas.training import TrainingJob

logger = logging.getLogger(__name__)
VECTORS: Final = "code_vectors"


class OthersStoppedError(RuntimeError):
    """Processes of another machine were told to end; torchrun starts those of this one again with who is left."""


def run_job(
    job: TrainingJob, group: ProcessGroup, stopping: Callable[[], bool] = lambda: False
) -> Generator[TrainingReport, None, None]:
    """Train from the newest checkpoint, or from the beginning, and tell everything since the beginning.

    The last checkpoint is the result. When `stopping` says so, in any process, a checkpoint is written and it ends,
    with OthersStoppedError where this process was not told to; alone, also when it is interrupted by what is no error,
    wherever that finds it.
    """
    checkpoints = open_checkpoints(job)
    check_shared(checkpoints, group)
    training = prepare(job, group)
    if not resume(training, checkpoints) and job.start:
        load_weights(training.state, Path(job.start.backbone), Path(job.start.head) if job.start.head else None)
    yield from training.reports
    with closing(training.run()) as steps:
        yield from _keep(steps, training, checkpoints, job, stopping)


def _keep(
    steps: Generator[TrainingReport, None, None],
    training: Training,
    checkpoints: Checkpoints,
    job: TrainingJob,
    stopping: Callable[[], bool],
) -> Generator[TrainingReport, None, None]:
    """Pass reports on, and write a checkpoint whenever one is due, at the end, and when somebody wants to stop."""
    group, kept = training.group, _Kept(training.state.step, time.monotonic())
    save = partial(save_state, training.state, training.reports, checkpoints, group, steps=training.steps)

    def end_step() -> bool:
        """Whether to stop here, in all processes at once."""
        kept.told = kept.told or stopping()
        stop, late = group.any(kept.told, group.leads and time.monotonic() - kept.at >= job.checkpoint_seconds)
        if late or (job.checkpoint_steps and training.state.step - kept.step >= job.checkpoint_steps):
            save()
            kept.step, kept.at = training.state.step, time.monotonic()
        return stop

    training.end_step = end_step
    try:
        yield from steps
    except BaseException as leaving:
        interrupted = not isinstance(leaving, Exception)  # told to end; several processes are told by a signal
        if interrupted and group.size == 1 and training.state.whole and training.state.step > kept.step:
            save()
        raise
    if training.state.step > kept.step:
        save()
    if training.state.step < training.steps and not kept.told:
        raise OthersStoppedError("another process was told to end: this one goes on from the checkpoint, without it")


@dataclass
class _Kept:
    """The step and the time of the last checkpoint, and whether this process was told to stop."""

    step: int
    at: float
    told: bool = False


def open_checkpoints(job: TrainingJob) -> Checkpoints:
    """Where the job keeps its state."""
    return Checkpoints(ArtifactStore(job.store), job.checkpoints, keep=job.checkpoints_kept)


def prepare(job: TrainingJob, group: ProcessGroup) -> Training:
    """The training before its first step."""
    faces = Faces([Path(path) for path in job.shards], workers=job.workers)
    codes_NL, shape = read_codes(Path(job.codes))
    vectors_ND = map_tensor(Path(job.code_vectors), VECTORS, scattered=True)
    training = begin_training(
        faces,
        codes_NL,
        vectors_ND,
        job.config,
        seed=job.seed,
        group=group,
        num_values=shape.vocab_size,
        gradient_checkpointing=job.gradient_checkpointing,
        compile=job.compile,
    )
    training.verify = prepare_validation(job, group.device) if group.leads else None
    return training


def resume(training: Training, checkpoints: Checkpoints) -> bool:
    """Bring the training to its newest whole checkpoint, the same one in every process; False when there is none."""
    found = checkpoints.newest()
    (folder, *_) = training.group.gather(found.folder if found else None)
    if folder is None:
        return False
    if found is None or found.folder != folder:
        raise RuntimeError(f"the checkpoint {folder} that the first process sees cannot be read by all")
    reports = load_state(training.state, found)
    training.reports = [TrainingReport(**report) for report in reports]
    if training.group.leads:
        logger.info("training goes on after step %d, from %s", training.state.step, folder)
    return True


def main() -> None:
    """One process under torchrun; the first tells the steps, a line of JSON each."""
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    stops = _Stops()
    job = TrainingJob.model_validate_json(Path(sys.argv[1]).read_text())
    try:
        group = join_processes(job.device)
        for report in run_job(job, group, stops):
            if group.leads:
                _tell(asdict(report))
    except (GifError, ValueError) as error:  # another attempt of torchrun would meet it again
        _tell(describe_fault(error))
    finally:
        leave_processes()


def _tell(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


class _Stops:
    """True as soon as this process was told to end."""

    def __init__(self) -> None:
        self.told = False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self.told = True

    def __call__(self) -> bool:
        return self.told


if __name__ == "__main__":
    main()
