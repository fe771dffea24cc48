"""Training (Eq. 7 to 10): a backbone learns to predict the code of a face and to meet its code vector.

buffers            The running metrics of a training, such as batch normalisation's, as they were before a step
checkpointing      When a training writes a checkpoint: whenever one is due, after the last step, when told to stop
checkpoints        The state of a training as files, and back: on as many processes as before, or on another number
data/              Training data: which images make up each step, and how they are decoded and augmented.
export             A trained backbone in the formats of others: ONNX, and the state dict that insightface reads
global_batch_norm  Batch normalisation over the images of all processes: the result does not depend on how many there...
headlines          The headline metrics of a training: in a line while it runs, and their means for the manifest
job                What the processes of a training are given: files, checkpoints, and the weights to start from
loggers            Where the metrics of a training can be watched: TensorBoard, Weights & Biases
model              A trained model as files: safetensors for the weights, JSON for what they are
oom                Too little memory for a training, told with the settings that need less of it
schedules          How the learning rate goes over a training
stage              The stage training: faces, codes and code vectors → backbone, head, metrics of all steps
step               One optimizer step: forward, backward, guard rails, update
trainer            Training of the backbone on fixed identity codes (Eq. 2, 7, 8, 10; the last part of Algorithm 1)
validation         A look at the network after every epoch: how well it tells identities apart whom it is not trained on
worker             Training from files to checkpoints: in the calling process, or as one of several under torchrun
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "BACKBONE",
    "HEAD",
    "NoTokenHeadsError",
    "TrainingLogs",
    "TrainingReport",
    "begin_training",
    "check_has_token_heads",
    "check_reads_codes",
    "export_onnx",
    "export_torch",
    "learned_codes",
    "load_backbone",
    "load_token_heads",
    "open_backbone",
    "open_checkpoints",
    "run_job",
    "save_model",
]

if TYPE_CHECKING:
    from gif_core.training.checkpoints import BACKBONE, HEAD
    from gif_core.training.export import export_onnx, export_torch
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
