"""Training (Eq. 7 to 10): how a backbone learns to predict the code of a face and to align with its code vector.

stage              `run`: faces, codes and code vectors become backbone, head and the metrics of all steps
trainer            The loop over epochs and steps (last part of Algorithm 1): state, reports, validation
step               One optimizer step: forward, backward, clipping, update
update             The optimizers' update, skipped on the device when loss or gradient is not finite
checkpointing      When a checkpoint is written: when one is due, after the last step, on a request to stop
checkpoint_writer  Writes a checkpoint in a thread while the training goes on
checkpoints        The training state as files, and back, on any number of processes
job                What each process is given: files, checkpoints, and the weights to start from
worker             Runs a job from files to checkpoints: in this process or as one of several under torchrun
validation         Per-epoch validation on pairs of held-out identities and of evaluation's pair sets
distillation       Learning the features of a frozen network as well
schedules          Learning rate over the steps
global_batch_norm  Batch normalisation over the images of all processes, independent of their number
buffers            Copies of the running statistics, to restore them when a step is skipped
headlines          Headline metrics: in a line while training runs, and their means for the manifest
loggers            TensorBoard and Weights & Biases
event_file         A file of metrics for TensorBoard, written by the caller's thread
model              A trained model as files: weights in safetensors, description in JSON
centroids          Separation of softmax centroids and code vectors after training (the paper's Figure 4)
oom                Out-of-memory errors, with the settings that need less memory
data/              Which images make up each step, and how they are decoded and augmented
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "MeasuredCentroids",
    "NoTokenHeadsError",
    "TrainingLogs",
    "TrainingReport",
    "begin_training",
    "check_has_token_heads",
    "check_reads_codes",
    "learned_codes",
    "load_backbone",
    "load_token_heads",
    "measure_centroids",
    "open_backbone",
    "open_checkpoints",
    "run_job",
    "save_model",
]

if TYPE_CHECKING:
    from gif_core.training.centroids import MeasuredCentroids, measure_centroids
    from gif_core.training.loggers import TrainingLogs
    from gif_core.training.model import (
        NoTokenHeadsError,
        check_has_token_heads,
        check_reads_codes,
        learned_codes,
        load_backbone,
        load_token_heads,
        open_backbone,
        save_model,
    )
    from gif_core.training.trainer import TrainingReport, begin_training
    from gif_core.training.worker import open_checkpoints, run_job
else:
    __getattr__ = lazy_imports(__name__)
