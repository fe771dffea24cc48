"""The interface between training and heads."""

# Shapes: B images of this process, D dimensions.

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gif_core.heads.sample_negatives import SampleNegatives


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """The loss to minimise and metrics to log, all scalars on the device."""

    loss: Tensor
    metrics: dict[str, Tensor]

    def plus(self, name: str, loss: Tensor, weight: float) -> "HeadOutput":
        """The output with another term of the loss, which is logged without its weight."""
        return HeadOutput(self.loss + weight * loss, {**self.metrics, name: loss.detach()})


class Head(nn.Module):
    """Features and labels → loss.

    A training step calls `begin_step`, then forward and backward for each micro-batch, then the optimizer's step, then
    `end_step`.
    """

    sharded = False
    """Whether each process holds different rows, so that gradients are not averaged over the processes."""
    draws_random_numbers = False
    """Whether `forward` uses PyTorch's global generators, which training then seeds for every step."""
    row_range: tuple[int, int] = (0, 0)
    """Identities whose rows this process holds: first, and end (exclusive)."""
    sample_negatives: SampleNegatives | None
    """A term of the loss that the trainer adds to that of the head."""

    def __init__(self) -> None:
        super().__init__()
        self.sample_negatives = None  # in the class it would hide the module of this name

    def row_tensors(self) -> tuple[str, ...]:
        """Names of the tensors in the state dict that have one row per identity of `row_range`."""
        return ()

    def forward(self, features_BD: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss of un-normalised features of the identities `labels_B` (a CPU tensor).

        Computed in fp32 even under autocast. A sharded head returns the loss of the batch of all processes, the same
        in each.
        """
        raise NotImplementedError

    def rows_of(self, labels_B: Tensor) -> Tensor:
        """The unit rows [B, D] that stand for these identities of this process in the current step, as constants."""
        raise NotImplementedError

    def attach(self, optimizer: Optimizer) -> None:
        """Keep a reference to the optimizer; called once, before the first step."""

    def row_optimizer(self) -> Optimizer | None:
        """The optimizer of rows that the head moves itself, whose parameters are not for the trainer's optimizer."""
        return None

    def hold_rows(self, device: torch.device, memory: float, precision: torch.dtype = torch.float32) -> None:
        """Keep on the device what has a row per identity and else stays on the host, if it fits `memory` bytes.

        Rows that do not learn are held in this precision. Called once, after the head has moved to the device.
        """

    def prepare_step(self, labels_B: Tensor, step: int) -> None:
        """Begin to read what a step needs, before the step before it; on a GPU, and for all steps but the first."""

    def begin_step(self, labels_B: Tensor, step: int) -> None:
        """Prepare a step on these identities of this process; `step` counts from 0."""

    def end_step(self) -> None:
        """Store what the optimizer has changed."""
