"""Training from files to checkpoints: in the calling process, or as one of several under torchrun.

python -m torch.distributed.run --nproc-per-node 2 -m gif_core.training_worker job.json
"""

import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np
import torch.distributed as dist
from torch import nn

from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.checkpoints import Checkpoints
from gif_core.code_table import read_codes
from gif_core.evaluation import embed_images
from gif_core.faces import Faces
from gif_core.inputs import map_tensor
from gif_core.pairs import draw_pairs
from gif_core.process_group import ProcessGroup, join_processes
from gif_core.processes import describe_fault, end_with_parent
from gif_core.training import Training, TrainingReport, begin_training
from gif_core.training_checkpoints import load_state, load_weights, save_state
from gif_core.verification import pair_distances, verify_distances
from schemas.errors import GifError
from schemas.training import TrainingJob

logger = logging.getLogger(__name__)
FOLDS: Final = 10
VECTORS: Final = "code_vectors"


def run_job(
    job: TrainingJob, group: ProcessGroup, stopping: Callable[[], bool] = lambda: False
) -> Generator[TrainingReport, None, None]:
    """Train from the newest checkpoint, or from the beginning, and tell everything since the beginning.

    The last checkpoint is the result. When `stopping` says so, in any process, a checkpoint is written and it ends;
    alone, also when it is interrupted by what is no error, wherever that finds it.
    """
    checkpoints = open_checkpoints(job)
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
    group, saved, saved_at = training.group, training.state.step, time.monotonic()
    save = partial(save_state, training.state, training.reports, checkpoints, group, steps=training.steps)
    training.stopping = lambda: group.any(stopping())[0]
    try:
        for report in steps:
            yield report
            late = group.leads and time.monotonic() - saved_at >= job.checkpoint_seconds
            many = report.step - saved >= (job.checkpoint_steps or report.steps)
            if group.any(late)[0] or many or report.step == report.steps:
                save()
                saved, saved_at = report.step, time.monotonic()
    except BaseException as leaving:
        interrupted = not isinstance(leaving, Exception)  # told to end; several processes are told by a signal
        if interrupted and group.size == 1 and training.state.whole and training.state.step > saved:
            save()
        raise
    if training.state.step > saved:
        save()


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
        num_values=shape.range,
        gradient_checkpointing=job.gradient_checkpointing,
        compile=job.compile,
    )
    training.verify = _verification(job, group)
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


def _verification(job: TrainingJob, group: ProcessGroup) -> Callable[[nn.Module], dict[str, float]] | None:
    """A quick look at how well people are told apart who are not trained on."""
    faces = Faces([Path(path) for path in job.held_out], workers=job.workers)
    if not len(faces) or not job.config.verified_pairs:
        return None
    pairs = draw_pairs(faces.labels_N, pairs=job.config.verified_pairs, seed=job.seed, folds=FOLDS)
    rows, places = np.unique(np.concatenate([pairs.left, pairs.right]), return_inverse=True)
    left, right = np.split(places, 2)

    def verify(model: nn.Module) -> dict[str, float]:
        features = np.concatenate(list(embed_images(model, faces, rows, flip=True, device=group.device)))
        found = verify_distances(pair_distances(features, left, right), pairs.same, FOLDS)
        return {"verification_accuracy": found.accuracy}

    return verify


def main() -> None:
    """One process under torchrun; the first tells the steps, a line of JSON each."""
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    stops = _Stops()
    job = TrainingJob.model_validate_json(Path(sys.argv[1]).read_text())
    group = join_processes(job.device)
    try:
        for report in run_job(job, group, stops):
            if group.leads:
                _tell(asdict(report))
    except (GifError, ValueError) as error:  # another attempt of torchrun would meet it again
        _tell(describe_fault(error))
    finally:
        dist.destroy_process_group()


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
