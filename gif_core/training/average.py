"""A slowly moving average of the network, which some heads compare with."""

from copy import deepcopy

import torch
from torch import nn

from gif_core.heads import Head, PairHead


def new_average(model: nn.Module, head: Head) -> nn.Module | None:
    """A copy of the network that learns nothing by itself; None for heads that need none."""
    return deepcopy(model).requires_grad_(False) if isinstance(head, PairHead) else None


@torch.no_grad()
def move_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Move the average's parameters towards those of the network. Its batch statistics are its own."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
