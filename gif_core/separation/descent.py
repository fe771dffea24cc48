"""Separation: spreading code vectors over the sphere with the Gaussian potential (Eq. 4 to 6)."""

# Shapes: N vectors, D dimensions, B rows of a batch, K neighbours.

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from gif_core.runtime import ShardedRows, unit_rows
from gif_core.separation.checkpoints import RowCheckpoints
from gif_core.separation.equalisation import equalise
from gif_core.separation.neighbourhoods import NEIGHBOURS, Neighbourhoods, nearest_of_all, sample
from gif_core.separation.potential import (
    batch_gradient,
    batch_potential,
    mean_cosine,
    mean_potential,
    tangent,
    uniform_limit,
)
from schemas.separation import SeparationConfig

logger = logging.getLogger(__name__)
MEASURED_ROWS: Final = 4096
"""Up to this many vectors the loss of an epoch is exact; beyond, it is that of a fixed sample."""
ALL_MEASURED: Final = 32
"""Neighbourhoods are measured in every epoch up to this one, then at powers of two and at the end."""
PULL_HALVES: Final = 10
"""Half-life of the pull, in epochs."""
LOG_SECONDS: Final = 30.0
"""Interval between progress messages within one epoch."""
_ORDER, _LOSS_SAMPLE = 0, 3


@dataclass(frozen=True)
class SeparationStep:
    """The metrics after an epoch; epoch 0 is the state before the first step."""

    epoch: int
    epochs: int
    loss: float
    gap: float
    mean_cosine: float
    neighbours_kept: float | None
    """None in epochs in which it is not measured."""
    spearman: float | None
    """None in epochs in which it is not measured."""


class Measures:
    """Computes the metrics of each epoch and decides when to stop."""

    def __init__(self, rows: ShardedRows, config: SeparationConfig, *, seed: int, fixed: int = 0) -> None:
        """Keep the neighbourhoods of `rows` as they are at the start; the first `fixed` rows never move."""
        self.config = config
        self.moving_B = fixed + sample(rows.total - fixed, MEASURED_ROWS, [seed, _LOSS_SAMPLE]) if fixed else None
        self.limit = uniform_limit(rows.local.shape[1], config.temperature)
        self.sample_B = sample(rows.total, MEASURED_ROWS, [seed, _LOSS_SAMPLE])
        self.start = Neighbourhoods(rows, seed=seed)

    def step(self, rows: ShardedRows, epoch: int) -> SeparationStep:
        """Measure the rows after an epoch."""
        config = self.config
        loss = self._loss(rows)
        gap = loss - self.limit
        due = self._is_last(epoch, gap) or epoch <= ALL_MEASURED or epoch & (epoch - 1) == 0 or config.least_kept
        kept = self.start.kept(rows) if due else None
        neighbours, ranks = (kept.neighbours, kept.spearman) if kept else (None, None)
        return SeparationStep(epoch, config.epochs, loss, gap, mean_cosine(rows), neighbours, ranks)

    def _loss(self, rows: ShardedRows) -> float:
        """Eq. 5 over all identities; with fixed rows, Eq. 6 of the moving ones against all."""
        if rows.total == 1:
            return self.limit
        if self.moving_B is not None and len(self.moving_B):
            return batch_potential(rows, self.moving_B, self.config.temperature)
        return mean_potential(rows.take(self.sample_B), self.config.temperature)

    def is_last(self, step: SeparationStep) -> bool:
        """Whether the number of epochs or the gap is reached."""
        return self._is_last(step.epoch, step.gap)

    def is_too_far(self, step: SeparationStep) -> bool:
        """Whether fewer neighbours are kept than `least_kept` requires."""
        return self.config.least_kept is not None and (step.neighbours_kept or 0.0) < self.config.least_kept

    def _is_last(self, epoch: int, gap: float) -> bool:
        return epoch == self.config.epochs or (self.config.target_gap is not None and gap <= self.config.target_gap)


def separate(
    rows: ShardedRows, config: SeparationConfig, *, seed: int, fixed: int = 0, checkpoints: RowCheckpoints | None = None
) -> Iterator[SeparationStep]:
    """Minimise Eq. 6 batch by batch; the unit vectors in `rows` are updated in place.

    Each step moves only the rows of its batch ("a subset of H at every iteration"); all other rows are constants.
    The first `fixed` rows never move, and the metrics are then those of the moving rows against all rows: this is how
    identities are added. With the checkpoints of an interrupted run, its steps are yielded again and the run
    continues after the last one. A single vector has no pair and does not move.
    """
    measures = Measures(rows, config, seed=seed, fixed=fixed)
    neighbours = _pulled(rows, config)
    done = checkpoints.load(rows) if checkpoints else []
    steps = [SeparationStep(**metrics) for metrics in done] or [measures.step(rows, 0)]
    yield from steps
    while rows.total > max(fixed, 1) and not measures.is_last(steps[-1]):
        before = rows.local.clone() if config.least_kept else None
        _run_epoch(rows, neighbours, config, measures, seed=seed, epoch=steps[-1].epoch + 1, fixed=fixed)
        step = measures.step(rows, steps[-1].epoch + 1)
        if before is not None and measures.is_too_far(step):
            rows.local.copy_(before)
            return
        steps.append(step)
        if checkpoints:
            checkpoints.save_if_due(rows, steps)
        yield step


def separated(vectors_ND: Tensor, config: SeparationConfig, *, seed: int) -> tuple[Tensor, list[SeparationStep]]:
    """Return the code vectors of `vectors_ND` and the metrics of every epoch; the input is not modified."""
    rows = ShardedRows(unit_rows(vectors_ND))
    steps = list(separate(rows, config, seed=seed))
    return rows.local, steps


def _pulled(rows: ShardedRows, config: SeparationConfig) -> ShardedRows | None:
    """Nearest neighbours of every row at the start, or None without a pull towards them."""
    if config.recipe == "literal" or not config.pull or rows.total < 2:
        return None
    return nearest_of_all(rows, NEIGHBOURS, config.batch_size)


def _run_epoch(
    rows: ShardedRows,
    neighbours: ShardedRows | None,
    config: SeparationConfig,
    measures: Measures,
    *,
    seed: int,
    epoch: int,
    fixed: int,
) -> None:
    """Run one pass over all batches in random order; epoch 1 is the closed form instead where it applies."""
    if epoch == 1 and not fixed and config.start_gap is not None and config.recipe != "literal":
        equalise(rows, measures.sample_B, temperature=config.temperature, gap=config.start_gap)
        return
    order_N = fixed + torch.from_numpy(np.random.default_rng([seed, _ORDER, epoch]).permutation(rows.total - fixed))
    pull = config.pull * 0.5 ** (epoch / PULL_HALVES)
    last_log = time.monotonic()
    for number, batch_B in enumerate(torch.split(order_N, config.batch_size)):
        _move(rows, batch_B.sort().values, neighbours, config, pull)
        if rows.leads and time.monotonic() - last_log > LOG_SECONDS:
            logger.info("epoch %d: %d of %d vectors moved", epoch, number * config.batch_size, rows.total - fixed)
            last_log = time.monotonic()


def _move(
    rows: ShardedRows, batch_B: Tensor, neighbours: ShardedRows | None, config: SeparationConfig, pull: float
) -> None:
    """Take one gradient step with a batch and project it back onto the sphere.

    The literal recipe uses the mean over the batch, as printed in the paper. Ours uses the sum, so that the step of a
    vector does not depend on the batch size, and subtracts `pull` times the mean of its neighbours at the start.
    """
    literal = config.recipe == "literal"
    batch_BD = rows.take(batch_B)
    gradient_BD = batch_gradient(rows, batch_B, config.temperature, self_pairs=literal)
    if not literal:
        gradient_BD *= len(batch_B)
    if neighbours is not None:
        nearest_BK = neighbours.take(batch_B)
        mean_BD = rows.add(rows.sums(nearest_BK)) / nearest_BK.shape[1]
        gradient_BD -= pull * tangent(mean_BD, batch_BD)
    rows.put(batch_B, torch.nn.functional.normalize(batch_BD - config.learning_rate * gradient_BD, dim=1))
