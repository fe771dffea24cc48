"""The running metrics of a training, such as batch normalisation's, as they were before a step."""

from collections.abc import Iterable
from itertools import groupby

import torch
from torch import Tensor

from gif_core.heads import Head


class KeptBuffers:
    """A copy of what a forward pass changes. The rows of identities do not, and may be many: they are no part of it."""

    def __init__(self, model: torch.nn.Module, head: Head) -> None:
        """Make room for it: one tensor for each type of number, so that a GPU handles all buffers of a type at once."""
        rows = head.row_tensors()
        found = [*model.buffers(), *(buffer for name, buffer in head.named_buffers() if name not in rows)]
        self.live = _by_type(found)
        self.kept = [torch.cat([buffer.flatten() for buffer in alike]) for alike in self.live]

    @torch.no_grad()
    def keep(self) -> None:
        """Remember them as they are."""
        for kept, live in zip(self.kept, self.live, strict=True):
            torch._foreach_copy_(_parts(kept, live), live)

    @torch.no_grad()
    def restore(self, skipped: Tensor | None = None) -> None:
        """Make them what they were; with `skipped`, a truth value on the device, only where that is true."""
        for kept, live in zip(self.kept, self.live, strict=True):
            if skipped is not None:
                kept = torch.where(skipped, kept, torch.cat([buffer.flatten() for buffer in live]))
            torch._foreach_copy_(live, _parts(kept, live))


def _parts(flat: Tensor, live: list[Tensor]) -> list[Tensor]:
    """Views of a tensor in the shapes of the buffers."""
    parts = torch.split(flat, [buffer.numel() for buffer in live])
    return [part.view(buffer.shape) for part, buffer in zip(parts, live, strict=True)]


def _by_type(buffers: Iterable[Tensor]) -> list[list[Tensor]]:
    """Together with their like, so that a GPU copies each kind at once."""
    ordered = sorted(buffers, key=lambda buffer: str(buffer.dtype))
    return [list(alike) for _, alike in groupby(ordered, key=lambda buffer: buffer.dtype)]
