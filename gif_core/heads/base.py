"""The interface between training and heads."""

# Shapes: B images of this process, D dimensions.

from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """The loss to minimise and metrics to log, all scalars on the device."""

    loss: Tensor
    metrics: dict[str, Tensor]


class Head(nn.Module):
    """Features and labels → loss.

    A training step calls `begin_step`, then forward and backward for each micro-batch, then the optimizer's step, then
    `end_step`.
    """

    sharded = False
    """Whether each process holds different rows, so that gradients are not averaged over the processes."""
    row_range: tuple[int, int] = (0, 0)
    """Identities whose rows a sharded head holds: first, and end (exclusive)."""

    def row_tensors(self) -> tuple[str, ...]:
        """Names of the tensors in the state dict that have one row per identity of `row_range`."""
        return ()

    def forward(self, features_BD: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss of un-normalised features of the identities `labels_B` (a CPU tensor).

        Computed in fp32 even under autocast. A sharded head returns the loss of the batch of all processes, the same
        in each.
        """
        raise NotImplementedError

    def attach(self, optimizer: Optimizer) -> None:
        """Keep a reference to the optimizer; called once, before the first step."""

    def begin_step(self, labels_B: Tensor, step: int) -> None:
        """Prepare a step on these identities of this process; `step` counts from 0."""

    def end_step(self) -> None:
        """Store what the optimizer has changed."""
