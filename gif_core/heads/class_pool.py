"""A pool of class centres, two per identity, in which the least recently used identity makes room for a new one.

All of it is computed on the device without waiting for it: which slot an identity gets depends on labels alone.
"""

# Shapes: P slots, G images, D dimensions.

from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

NOBODY: Final = -1
"""Label of slots that are still empty."""


class Insertion(NamedTuple):
    """What an insertion has replaced, and which identities have both of their centres from it or from before."""

    is_double_P: Tensor
    row_G: Tensor
    slot_G: Tensor
    centres_GD: Tensor
    labels_P: Tensor
    used_P: Tensor
    next_row_P: Tensor


class ClassPool(nn.Module):
    """Centres [2, P + 1, D] of at most P identities; the last slot takes what is not to be kept."""

    centres: Tensor
    labels_P: Tensor
    used_P: Tensor
    next_row_P: Tensor
    clock: Tensor

    def __init__(self, slots: int, dim: int) -> None:
        """The pool is empty at first."""
        super().__init__()
        self.register_buffer("centres", torch.zeros(2, slots + 1, dim))
        self.register_buffer("labels_P", torch.full((slots,), NOBODY))
        self.register_buffer("used_P", torch.full((slots,), -1))
        self.register_buffer("next_row_P", torch.zeros(slots, dtype=torch.int64))
        self.register_buffer("clock", torch.zeros((), dtype=torch.int64))

    def find(self, labels_G: Tensor) -> tuple[Tensor, Tensor]:
        """Slot of each identity, and whether it is in the pool at all."""
        sorted_P, order_P = self.labels_P.sort(stable=True)
        place_G = torch.searchsorted(sorted_P, labels_G.contiguous()).clamp(max=len(sorted_P) - 1)
        return order_P[place_G], sorted_P[place_G] == labels_G

    @torch.no_grad()
    def insert(self, labels_G: Tensor, centres_GD: Tensor) -> Insertion:
        """Put the features of these images in: an identity's images take turns at its two centres.

        At most P identities fit. New ones start at the first centre.
        """
        slots, place_G = len(self.labels_P), torch.arange(len(labels_G), device=labels_G.device)
        same_GG = labels_G[:, None] == labels_G
        earlier_G, count_G = same_GG.tril(-1).sum(dim=1), same_GG.sum(dim=1)
        slot_G, known_G = self._slots_for(labels_G, same_GG, earlier_G)
        start_G = torch.where(known_G, self.next_row_P[slot_G], 0)
        row_G = (start_G + earlier_G) % 2
        target_G = torch.where(earlier_G >= count_G - 2, slot_G, slots)  # earlier ones would be overwritten
        before = (row_G, target_G, self.centres[row_G, target_G])
        states = tuple(each.clone() for each in (self.labels_P, self.used_P, self.next_row_P))
        self.centres[row_G, target_G] = centres_GD.to(self.centres.dtype)
        self.labels_P[slot_G] = labels_G
        self.next_row_P[slot_G] = (start_G + count_G) % 2
        self.used_P.scatter_reduce_(0, slot_G, self.clock + place_G, "amax")
        self.clock.add_(len(labels_G))
        is_double_P = torch.zeros_like(self.labels_P, dtype=torch.bool)
        is_double_P[slot_G] = known_G | (count_G > 1)
        return Insertion(is_double_P, *before, *states)

    @torch.no_grad()
    def undo(self, insertion: Insertion) -> None:
        """Make the pool what it was before this insertion, the last one."""
        self.centres[insertion.row_G, insertion.slot_G] = insertion.centres_GD
        self.labels_P.copy_(insertion.labels_P)
        self.used_P.copy_(insertion.used_P)
        self.next_row_P.copy_(insertion.next_row_P)
        self.clock.sub_(len(insertion.row_G))

    def _slots_for(self, labels_G: Tensor, same_GG: Tensor, earlier_G: Tensor) -> tuple[Tensor, Tensor]:
        """The slot of each image's identity: its own, or the least recently used one; and whether it was there."""
        slot_G, known_G = self.find(labels_G)
        slots = len(self.used_P)
        in_use = torch.zeros(slots + 1, dtype=torch.bool, device=labels_G.device)
        in_use[torch.where(known_G, slot_G, slots)] = True
        oldest_P = self.used_P.masked_fill(in_use[:-1], torch.iinfo(torch.int64).max).argsort(stable=True)
        is_new_G = ~known_G & (earlier_G == 0)
        number_G = (is_new_G.cumsum(0) - 1).clamp(0, len(oldest_P) - 1)
        first_G = same_GG.int().argmax(dim=1)
        return torch.where(known_G, slot_G, oldest_P[number_G[first_G]]), known_G
