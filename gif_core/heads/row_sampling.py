"""PartialFC: the rows of a classifier that a step uses, and the optimizer's state of each row."""

# Shapes: P rows of this process in the batch.

import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

SAMPLING: Final = 506
"""Second part of the seed; no other random stream uses it."""


def draw_rows(num_rows: int, positives_P: NDArray[np.int64], rate: float, seed: list[int]) -> NDArray[np.int64]:
    """Rows of a step in ascending order: those of the batch, and random others up to the share `rate`."""
    others = max(math.ceil(rate * num_rows) - len(positives_P), 0)
    rng = np.random.default_rng(np.random.SeedSequence([seed[0], SAMPLING, *seed[1:]]))
    drawn = rng.choice(num_rows - len(positives_P), others, replace=False, shuffle=False)
    drawn += np.searchsorted(positives_P - np.arange(len(positives_P)), drawn, side="right")
    return np.sort(np.concatenate([positives_P, drawn]))


def row_states(optimizer: Optimizer) -> tuple[str, ...]:
    """Names of the optimizer's state tensors that have the shape of the parameter."""
    if isinstance(optimizer, SGD):
        return ("momentum_buffer",) if optimizer.defaults["momentum"] else ()
    if isinstance(optimizer, AdamW) and not optimizer.defaults["amsgrad"]:
        return ("exp_avg", "exp_avg_sq")
    raise ValueError(f"rows can be sampled with SGD and with AdamW (not amsgrad), not with {type(optimizer).__name__}")


def ensure_step_count(optimizer: Optimizer, parameter: nn.Parameter) -> None:
    """Give AdamW its step count: without one it would reset the averages that it is handed."""
    if isinstance(optimizer, AdamW):
        on_device = optimizer.defaults["fused"] or optimizer.defaults["capturable"]
        device = parameter.device if on_device else torch.device("cpu")
        optimizer.state[parameter].setdefault("step", torch.zeros((), device=device))
