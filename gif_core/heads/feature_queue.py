"""Features of recent images: a first-in, first-out queue of fixed length that a head keeps and a checkpoint carries."""

# Shapes: Q places in the queue, G images of all processes, D dimensions.

from typing import Final

import torch
from torch import Tensor, nn

NOBODY: Final = -1
"""Label of places that are still empty."""


class FeatureQueue(nn.Module):
    """Features, their identities and, with `with_rows`, a further vector for each; the same in every process."""

    features_QD: Tensor
    labels_Q: Tensor
    rows_QD: Tensor
    next_place: Tensor

    def __init__(self, length: int, dim: int, *, with_rows: bool = False) -> None:
        """The queue is empty at first."""
        super().__init__()
        self.register_buffer("features_QD", torch.zeros(length, dim))
        self.register_buffer("labels_Q", torch.full((length,), NOBODY))
        self.register_buffer("rows_QD", torch.zeros(length if with_rows else 0, dim))
        self.register_buffer("next_place", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, features_GD: Tensor, labels_G: Tensor, rows_GD: Tensor | None = None) -> None:
        """Replace the oldest features by these, of the images of all processes."""
        length = len(self.labels_Q)
        count = min(len(labels_G), length)
        places_G = (self.next_place + torch.arange(count, device=labels_G.device)) % length
        self.features_QD[places_G] = features_GD[-count:].detach().to(self.features_QD.dtype)
        self.labels_Q[places_G] = labels_G[-count:]
        if rows_GD is not None:
            self.rows_QD[places_G] = rows_GD[-count:].detach().to(self.rows_QD.dtype)
        self.next_place.add_(count).remainder_(length)
