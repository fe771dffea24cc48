"""One step of a head, as training does it, in phases that a clock can tell apart."""

# Shapes: B images in a batch, D dimensions.

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from gif_core.heads import Head


def draw_labels(rng: np.random.Generator, identities: int, size: int, together: int) -> Tensor:
    """Identities of a batch, each with so many images."""
    drawn = rng.integers(0, identities, -(-size // together))
    return torch.from_numpy(np.repeat(drawn, together)[:size])


def _mark_nothing(phase: str) -> None:
    """Without a clock."""


class HeadStep:
    """A head with its optimizers: rows, forward, backward and update."""

    def __init__(self, head: Head, learning: Optimizer) -> None:
        """`learning` updates all parameters but the rows that the head holds itself, which have their own optimizer."""
        self.head = head
        head.attach(learning)
        rows = head.row_optimizer()
        self.optimizers = [learning, rows] if rows else [learning]

    def run(
        self, labels_B: Tensor, number: int, loss: Callable[[], Tensor], mark: Callable[[str], None] = _mark_nothing
    ) -> None:
        """One step with the loss that a network and the head have for these labels; `mark` ends each phase."""
        self.head.begin_step(labels_B, number)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        mark("rows")
        found = loss()
        mark("forward")
        found.backward()  # type: ignore[no-untyped-call]
        mark("backward")
        for optimizer in self.optimizers:
            optimizer.step()
        self.head.end_step()
        mark("optimizer")
