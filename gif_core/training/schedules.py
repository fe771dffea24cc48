"""How the learning rate goes over a training."""

import math


def learning_rate(step: int, *, steps: int, peak: float, warmup_steps: int) -> float:
    """Linear warm-up to the peak, then a cosine that is 0 after the last step; `step` counts from 0."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps)))


def check_warmup(warmup_steps: int, steps: int) -> None:
    """Refuse a warm-up that lasts as long as the training."""
    if warmup_steps >= steps:
        raise ValueError(f"warmup_steps={warmup_steps} must be fewer than the {steps} steps of this training")
