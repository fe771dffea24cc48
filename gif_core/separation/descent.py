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

from gif_core.runtime import Rows, unit_rows
from gif_core.separation.checkpoints import Checkpoints
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
"""The loss of an epoch is exact up to this many vectors, and that of a fixed sample beyond."""
ALL_MEASURED: Final = 32
"""Up to this epoch the neighbourhood is measured in every one; then at powers of two and at the end."""
PULL_HALVES: Final = 10
"""Epochs in which the pull loses half its strength."""
LOG_SECONDS: Final = 30.0
"""An epoch that takes longer says how far it is."""
_ORDER, _LOSS_SAMPLE = 0, 3


@dataclass(frozen=True)
class SeparationStep:
    """The metrics after an epoch; epoch 0 is the start."""

    epoch: int
    epochs: int
    loss: float
    gap: float
    mean_cosine: float
    neighbours_kept: float | None
    """Null where it is not measured, like the next."""
    spearman: float | None


class Measures:
    """What is measured after each epoch, and when enough is enough."""

    def __init__(self, rows: Rows, config: SeparationConfig, *, seed: int, fixed: int = 0) -> None:
        """`rows` are those of the start, to which the later ones are compared; the first `fixed` of them never move."""
        self.config = config
        self.moving_B = fixed + sample(rows.total - fixed, MEASURED_ROWS, [seed, _LOSS_SAMPLE]) if fixed else None
        self.limit = uniform_limit(rows.local.shape[1], config.temperature)
        self.sample_B = sample(rows.total, MEASURED_ROWS, [seed, _LOSS_SAMPLE])
        self.start = Neighbourhoods(rows, seed=seed)

    def step(self, rows: Rows, epoch: int) -> SeparationStep:
        """The metrics of an epoch."""
        config = self.config
        loss = self._loss(rows)
        gap = loss - self.limit
        due = self._is_last(epoch, gap) or epoch <= ALL_MEASURED or epoch & (epoch - 1) == 0 or config.least_kept
        kept = self.start.kept(rows) if due else None
        neighbours, ranks = (kept.neighbours, kept.spearman) if kept else (None, None)
        return SeparationStep(epoch, config.epochs, loss, gap, mean_cosine(rows), neighbours, ranks)

    def _loss(self, rows: Rows) -> float:
        """Of all identities; when most stay where they are, of those who move against all identities."""
        if rows.total == 1:
            return self.limit
        if self.moving_B is not None and len(self.moving_B):
            return batch_potential(rows, self.moving_B, self.config.temperature)
        return mean_potential(rows.take(self.sample_B), self.config.temperature)

    def is_last(self, step: SeparationStep) -> bool:
        """Whether the number of epochs or the gap is reached."""
        return self._is_last(step.epoch, step.gap)

    def is_too_far(self, step: SeparationStep) -> bool:
        """Whether fewer neighbours are kept than there must be."""
        return self.config.least_kept is not None and (step.neighbours_kept or 0.0) < self.config.least_kept

    def _is_last(self, epoch: int, gap: float) -> bool:
        return epoch == self.config.epochs or (self.config.target_gap is not None and gap <= self.config.target_gap)


def separate(
    rows: Rows, config: SeparationConfig, *, seed: int, fixed: int = 0, checkpoints: Checkpoints | None = None
) -> Iterator[SeparationStep]:
    """Minimise Eq. 6 over the batches of every epoch; the unit vectors in `rows` are moved in place.

    The first `fixed` of them stay, and the metrics are those of the others against all identities: so identities are
    added.

    Only the batch moves; the rows it is held against stay ("a subset of H at every iteration"). With checkpoints of
    an interrupted run, its steps are given again and it goes on after the last. A single vector has no pair: it stays.
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
    """Code vectors of the vectors, and how they came about; the vectors themselves are left alone."""
    rows = Rows(unit_rows(vectors_ND))
    steps = list(separate(rows, config, seed=seed))
    return rows.local, steps


def _pulled(rows: Rows, config: SeparationConfig) -> Rows | None:
    """The neighbours at the start of every row, when there is a pull towards them."""
    if config.recipe == "literal" or not config.pull or rows.total < 2:
        return None
    return nearest_of_all(rows, NEIGHBOURS, config.batch_size)


def _run_epoch(
    rows: Rows,
    neighbours: Rows | None,
    config: SeparationConfig,
    measures: Measures,
    *,
    seed: int,
    epoch: int,
    fixed: int,
) -> None:
    """The closed form first, if it is configured and no row is fixed; then passes over all batches in random order."""
    if epoch == 1 and not fixed and config.start_gap is not None and config.recipe != "literal":
        equalise(rows, measures.sample_B, temperature=config.temperature, gap=config.start_gap)
        return
    order_N = fixed + torch.from_numpy(np.random.default_rng([seed, _ORDER, epoch]).permutation(rows.total - fixed))
    pull = config.pull * 0.5 ** (epoch / PULL_HALVES)
    said = time.monotonic()
    for number, batch_B in enumerate(torch.split(order_N, config.batch_size)):
        _move(rows, batch_B.sort().values, neighbours, config, pull)
        if rows.leads and time.monotonic() - said > LOG_SECONDS:
            logger.info("epoch %d: %d of %d vectors moved", epoch, number * config.batch_size, rows.total - fixed)
            said = time.monotonic()


def _move(rows: Rows, batch_B: Tensor, neighbours: Rows | None, config: SeparationConfig, pull: float) -> None:
    """One step of a batch, and back onto the sphere.

    The literal recipe takes the mean over the batch as printed; ours the sum, so that a vector's step does not depend
    on how many others are in its batch, less `pull` times the mean of its neighbours at the start.
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
