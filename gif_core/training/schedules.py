"""How the learning rate goes over a training."""

import math

from schemas.training import TrainingConfig


def learning_rate(step: int, config: TrainingConfig, *, steps: int, peak: float) -> float:
    """Linear warm-up to the peak, then the decay of `config.schedule`; `step` counts from 0."""
    if step < config.warmup_steps:
        return peak * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / (steps - config.warmup_steps)
    match config.schedule:
        case "cosine":
            return peak * 0.5 * (1 + math.cos(math.pi * done))
        case "linear":
            return peak * (1 - done)
        case "step":
            return peak * 0.1 ** sum(step >= share * steps for share in config.drops)


def row_learning_rate(step: int, config: TrainingConfig, *, steps: int) -> float:
    """The rate of `living` code vectors: `row_rate` on the schedule of the network, times √(share of the steps taken).

    Adagrad divides by the root of how often a row has been in use. Of a row that is in use n times, both together make
    n moves by angles of about `row_rate`/√n: the distance of a random walk is the same for rare and frequent rows, and
    the first moves, by gradients of a network that has learned nothing yet, are no longer than others.
    """
    return learning_rate(step, config, steps=steps, peak=config.row_rate) * math.sqrt((step + 1) / steps)


def check_warmup(warmup_steps: int, steps: int) -> None:
    """Refuse a warm-up that lasts as long as the training."""
    if warmup_steps >= steps:
        raise ValueError(f"warmup_steps={warmup_steps} must be fewer than the {steps} steps of this training")
