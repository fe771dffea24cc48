"""Whether the faces suffice for the settings of training; asked before hours of work, not after."""

from typing import Final

from schemas.errors import GifError
from schemas.run import RunConfig

FEW_STEPS: Final = 10
"""Steps of an epoch below which a smaller batch is proposed."""
WANTED_STEPS: Final = 20
"""Steps of an epoch that a proposed batch size gives."""


class NotEnoughDataError(GifError, ValueError):
    """The faces cannot be trained on with these settings."""


def check_enough(config: RunConfig, identities: int, images: int) -> list[str]:
    """Warnings about the identities and images to train on; NotEnoughDataError if training cannot begin."""
    if identities < 2:
        raise NotEnoughDataError(
            f"the faces are of {identities} identity: training needs at least two (one sub-folder or label for each)"
        )
    training = config.training
    images_per_step = min(training.batch_size, images)
    per_epoch = images // images_per_step
    steps = training.epochs * per_epoch
    if training.warmup_steps >= steps:
        raise NotEnoughDataError(
            f"training.warmup_steps = {training.warmup_steps}, but the whole training has {steps} steps "
            f"({training.epochs} epochs of {images:,} images in batches of {images_per_step}): "
            f"lower it{_smaller_batch(config, images)}"
        )
    if per_epoch < FEW_STEPS and training.batch_size > proposed_batch(images):
        return [
            f"an epoch of {images:,} images in batches of {training.batch_size} has {per_epoch} "
            f"step{'s' if per_epoch > 1 else ''}: lower {_proposal(images)}"
        ]
    return []


def proposed_batch(images: int) -> int:
    """The largest power of two that gives an epoch enough steps; at least two images for batch normalisation."""
    return max(2, 1 << max(images // WANTED_STEPS, 1).bit_length() - 1)


def _smaller_batch(config: RunConfig, images: int) -> str:
    """The other way out of a warm-up that is too long, when there is one."""
    training, batch = config.training, proposed_batch(images)
    is_enough = training.epochs * (images // batch) > training.warmup_steps
    return f", or lower {_proposal(images)}" if batch < training.batch_size and is_enough else ""


def _proposal(images: int) -> str:
    batch = proposed_batch(images)
    return f"training.batch_size, for instance to {batch} ({images // batch} steps an epoch)"
