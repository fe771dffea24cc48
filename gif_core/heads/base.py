"""What training asks of a head."""

# Shapes: B images of this process in a batch, D dimensions.

from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """The loss to minimise and what is worth watching, all scalars on the device."""

    loss: Tensor
    metrics: dict[str, Tensor]


class Head(nn.Module):
    """Features and labels → loss.

    A step of training is `begin_step`, one call for each micro-batch with its backward, the optimizer's step, and
    `end_step`.
    """

    sharded = False
    """Whether each process holds other rows, so that gradients are not averaged over the processes."""
    row_range: tuple[int, int] = (0, 0)
    """The identities whose rows a sharded head holds: the first, and the one after the last."""

    def row_tensors(self) -> tuple[str, ...]:
        """Names of the tensors of the state dict that have a row for each identity of `row_range`."""
        return ()

    def forward(self, features_BD: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss of un-normalised features that belong to the identities `labels_B`, which lie in the host's memory.

        In fp32 also under autocast. A sharded head gives the loss of the batch of all processes, the same in each.
        """
        raise NotImplementedError

    def attach(self, optimizer: Optimizer) -> None:
        """Get to know the optimizer; called once, before the first step."""

    def begin_step(self, labels_B: Tensor, step: int) -> None:
        """Get ready for a step on these identities of this process; `step` counts from 0."""

    def end_step(self) -> None:
        """Put away what the optimizer has changed."""
