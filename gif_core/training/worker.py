"""Training from files to checkpoints: in the calling process, or as one of several under torchrun.

python -m torch.distributed.run --nproc-per-node 2 -m gif_core.training.worker job.json
"""

# Shapes: N identities, L code length, D dimensions.

import logging
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from gif_core.artifacts import ArtifactStore, Checkpoints, StoreAwayError, check_shared, newest_of_all
from gif_core.images import Faces
from gif_core.runtime import JobWorker, ProcessGroup, expect_scattered, map_matrix
from gif_core.tokenization import read_codes
from gif_core.training.checkpointing import Checkpointing
from gif_core.training.checkpoints import VECTORS, load_state, load_weights
from gif_core.training.data.decoders import DecoderError
from gif_core.training.distillation import open_teacher
from gif_core.training.trainer import Training, TrainingReport, begin_training
from gif_core.training.validation import prepare_validation
from schemas.training import TrainingJob

logger = logging.getLogger(__name__)


def run_job(
    job: TrainingJob, group: ProcessGroup, stopping: Callable[[], bool] = lambda: False
) -> Generator[TrainingReport, None, None]:
    """Train from the newest checkpoint, or from scratch, and report all steps since the beginning.

    The last checkpoint is the result; `Checkpointing` decides when the others are written, and what `stopping` does.
    """
    checkpoints = open_checkpoints(job)
    check_shared(checkpoints, group)
    training = prepare(job, group)
    if not resume(training, checkpoints) and job.start:
        load_weights(training.state, job.start)
    yield from training.reports
    yield from Checkpointing(training, checkpoints, job, stopping).run()


def open_checkpoints(job: TrainingJob) -> Checkpoints:
    """Where the job keeps its state."""
    return Checkpoints(ArtifactStore(job.store), job.checkpoints, keep=job.checkpoints_kept)


def prepare(job: TrainingJob, group: ProcessGroup) -> Training:
    """The training before its first step."""
    faces = Faces([Path(path) for path in job.shards], workers=job.workers)
    codes_NL, shape = read_codes(Path(job.codes))
    vectors_ND = expect_scattered(map_matrix(Path(job.code_vectors), VECTORS))
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
        code_vector_memory=job.code_vector_memory,
        code_vector_precision=job.code_vector_precision,
    )
    if job.teacher:
        training.teacher = open_teacher(job.teacher, vectors_ND.shape[1], group.device)
    training.verify = prepare_validation(job, group.device) if group.leads else None
    return training


def resume(training: Training, checkpoints: Checkpoints) -> bool:
    """Bring the training to its newest whole checkpoint, the same one in every process; False when there is none."""
    found = newest_of_all(checkpoints, training.group)
    if found is None:
        return False
    reports = load_state(training.state, found)
    training.reports = [TrainingReport(**report) for report in reports]
    if training.group.leads:
        logger.info("training goes on after step %d, from %s", training.state.step, found.folder)
    return True


WORKER: Final = JobWorker(
    module="gif_core.training.worker",
    job_type=TrainingJob,
    step_type=TrainingReport,
    run=run_job,
    stops_gracefully=True,
    passing=(StoreAwayError, DecoderError),
)

if __name__ == "__main__":
    WORKER.main()
