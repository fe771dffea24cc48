"""Which images make up every step of a training: a function of seed and epoch, whoever reads them."""

# Shapes: I images in all.

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from gif_core.training.data.augmentation import Augmentation, draw_augmentation

if TYPE_CHECKING:  # the processes that decode start in half the time without the settings
    from schemas.training import TrainingConfig

ORDER: Final = 502
FLIPS: Final = 503
AUGMENTATIONS: Final = 504
"""The second part of every seed here, so that no two streams of random numbers are alike."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Which images make up a step, and what is done to each."""

    epoch: int
    indices: NDArray[np.int64]
    flips: NDArray[np.bool_]
    augmentation: Augmentation | None

    def __len__(self) -> int:
        """Number of images."""
        return len(self.indices)

    def part(self, rows: slice) -> "BatchPlan":
        """The plan of some of its images."""
        augmentation = self.augmentation and self.augmentation.part(rows)
        return BatchPlan(self.epoch, self.indices[rows], self.flips[rows], augmentation)


def epoch_shape(num_images: int, config: "TrainingConfig", world: int = 1) -> tuple[int, int]:
    """Steps of an epoch and images of a step: the ragged last batch is dropped unless it is the only one."""
    images_per_step, parts = min(config.batch_size, num_images), config.accumulation
    if images_per_step < 2 * world * parts:
        raise ValueError(
            f"batch_size={config.batch_size} over {num_images} images: batch normalisation needs two images a step"
            + (f" in each of {world} processes" if world > 1 else "")
            + (f" and of {parts} parts: lower training.accumulation" if parts > 1 else "")
        )
    if images_per_step % world:
        raise ValueError(
            f"a step of {images_per_step} images cannot be shared equally by {world} processes: "
            f"set training.batch_size to a multiple of {world}, of at most the {num_images} images there are"
        )
    return num_images // images_per_step, images_per_step


def plan_batches(
    num_images: int, config: "TrainingConfig", *, seed: int, start_step: int = 0, rank: int = 0, world: int = 1
) -> Iterator[BatchPlan]:
    """The share of process `rank` in every step after the first `start_step` of the training.

    The shares of all `world` processes together are the batch of a single one, in its order.
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world} processes: ranks are 0 to {world - 1}")
    steps, size = epoch_shape(num_images, config, world)
    share = slice(rank * size // world, (rank + 1) * size // world)
    for epoch in range(start_step // steps, config.epochs):
        order_I = draw_order(num_images, seed=seed, epoch=epoch)
        for step in range(max(start_step - epoch * steps, 0), steps):
            indices = order_I[step * size : (step + 1) * size]
            yield _plan_step(indices, config, seed=seed, epoch=epoch, step=step).part(share)


def draw_order(num_images: int, *, seed: int, epoch: int) -> NDArray[np.signedinteger]:
    """All images in a random order; four bytes for each while that is enough."""
    smallest = np.int32 if num_images <= np.iinfo(np.int32).max else np.int64
    order_I: NDArray[np.signedinteger] = np.arange(num_images, dtype=smallest)
    np.random.default_rng([seed, ORDER, epoch]).shuffle(order_I)
    return order_I


def draw_flips(size: int, *, seed: int, epoch: int, start: int) -> NDArray[np.bool_]:
    """Half of the images, those of the epoch from `start` on: the numbers of the others are passed over undrawn."""
    bits = np.random.PCG64([seed, FLIPS, epoch]).advance(start)
    return np.random.Generator(bits).random(size) < 0.5


def _plan_step(
    indices: NDArray[np.signedinteger], config: "TrainingConfig", *, seed: int, epoch: int, step: int
) -> BatchPlan:
    size = len(indices)
    nothing = np.zeros(size, np.bool_)
    flips = draw_flips(size, seed=seed, epoch=epoch, start=step * size) if config.flip else nothing
    augmentation = draw_augmentation(config.augmentation, size, [seed, AUGMENTATIONS, epoch, step])
    return BatchPlan(epoch, indices.astype(np.int64), flips, augmentation)
