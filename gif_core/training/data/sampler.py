"""Which images make up every step of a training: a function of seed and epoch, whoever reads them."""

# Shapes: I images in all, N identities, K groups of images of one identity.

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
GROUPS: Final = 509
"""The second part of every seed here, so that no two streams of random numbers are alike."""
PAIRED: Final = ("dcq", "f2c")
"""Heads whose batches are pairs of images, which no process and no part of a batch may divide."""


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
    if config.head in PAIRED and images_per_step % (2 * world * parts):
        raise ValueError(
            f"{config.head} compares pairs: a step of {images_per_step} images cannot be divided into pairs for "
            f"{world} processes and {parts} parts: set training.batch_size to a multiple of {2 * world * parts}, of at "
            f"most the {num_images} images there are"
        )
    return num_images // images_per_step, images_per_step


def plan_batches(
    num_images: int,
    config: "TrainingConfig",
    *,
    labels_I: NDArray[np.int64] | None = None,
    seed: int,
    start_step: int = 0,
    rank: int = 0,
    world: int = 1,
) -> Iterator[BatchPlan]:
    """The share of process `rank` in every step after the first `start_step` of the training.

    The shares of all `world` processes together are the batch of a single one, in its order. `labels_I` are the
    identities of the images, for settings that group them.
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world} processes: ranks are 0 to {world - 1}")
    steps, size = epoch_shape(num_images, config, world)
    share = slice(rank * size // world, (rank + 1) * size // world)
    for epoch in range(start_step // steps, config.epochs):
        order_I = draw_epoch(num_images, config, labels_I, seed=seed, epoch=epoch)
        for step in range(max(start_step - epoch * steps, 0), steps):
            indices = order_I[step * size : (step + 1) * size]
            yield _plan_step(indices, config, seed=seed, epoch=epoch, step=step).part(share)


def draw_epoch(
    num_images: int, config: "TrainingConfig", labels_I: NDArray[np.int64] | None, *, seed: int, epoch: int
) -> NDArray[np.signedinteger]:
    """The images of an epoch in order: all of them, or at least as many in groups of one identity."""
    order_I = draw_order(num_images, seed=seed, epoch=epoch)
    size = config.images_per_identity_of_head
    if size == 1:
        return order_I
    if labels_I is None:
        raise ValueError("images can be grouped by identity only with their labels")
    rng = np.random.default_rng([seed, GROUPS, epoch])
    if config.head == "f2c":
        return draw_pairs_and_images(order_I, labels_I, rng)
    return draw_groups(order_I, labels_I, size, rng)


def draw_groups(
    order_I: NDArray[np.signedinteger], labels_I: NDArray[np.int64], size: int, rng: np.random.Generator
) -> NDArray[np.signedinteger]:
    """Every image, in random groups of `size` of one identity; a last group is filled from the identity's first."""
    grouped_I, first_N, counts_N = by_identity(order_I, labels_I)
    groups_N = -(-counts_N // size)
    identity_K = np.repeat(np.arange(len(counts_N)), groups_N)
    number_K = np.arange(len(identity_K)) - np.repeat(np.cumsum(groups_N) - groups_N, groups_N)
    shuffled_K = rng.permutation(len(identity_K))
    identity_K, number_K = identity_K[shuffled_K, None], number_K[shuffled_K, None]
    places = first_N[identity_K] + (number_K * size + np.arange(size)) % counts_N[identity_K]
    return grouped_I[places.ravel()]


def draw_pairs_and_images(
    order_I: NDArray[np.signedinteger], labels_I: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.signedinteger]:
    """In turns, two images of one identity, of all identities alike, and two images of any."""
    pairs = -(-len(order_I) // 4)
    grouped_I, first_N, counts_N = by_identity(order_I, labels_I)
    rounds = -(-pairs // len(counts_N))
    identity_K = np.concatenate([rng.permutation(len(counts_N)) for _ in range(rounds)])[:pairs]
    count_K = counts_N[identity_K]
    one_K = rng.integers(count_K)
    other_K = (one_K + 1 + rng.integers(np.maximum(count_K - 1, 1))) % count_K
    of_one = grouped_I[first_N[identity_K] + np.stack([one_K, other_K])].T
    of_any = order_I[: 2 * pairs].reshape(-1, 2)
    return np.stack([of_one, of_any], axis=1).ravel()


def by_identity(
    order_I: NDArray[np.signedinteger], labels_I: NDArray[np.int64]
) -> tuple[NDArray[np.signedinteger], NDArray[np.int64], NDArray[np.int64]]:
    """The images in the same order but identity by identity; where each begins, and how many images it has."""
    labels = labels_I[order_I]
    grouped_I = order_I[np.argsort(labels, kind="stable")]
    _, first_N, counts_N = np.unique(labels_I[grouped_I], return_index=True, return_counts=True)
    return grouped_I, first_N, counts_N


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
