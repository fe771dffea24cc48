"""The running metrics of a training, such as batch normalisation's, as they were before a step."""

from collections.abc import Iterable
from itertools import groupby

import torch
from torch import Tensor

from gif_core.heads import Head


class KeptBuffers:
    """A copy of what a forward pass changes. The rows of identities do not, and may be many: they are no part of it."""

    def __init__(self, model: torch.nn.Module, head: Head) -> None:
        """Make room for it."""
        rows = head.row_tensors()
        found = [*model.buffers(), *(buffer for name, buffer in head.named_buffers() if name not in rows)]
        self.live = _by_type(found)
        self.kept = [[torch.empty_like(buffer) for buffer in alike] for alike in self.live]

    def keep(self) -> None:
        """Remember them as they are."""
        self._copy(self.kept, self.live)

    def restore(self) -> None:
        """Make them what they were."""
        self._copy(self.live, self.kept)

    @torch.no_grad()
    def _copy(self, to: list[list[Tensor]], what: list[list[Tensor]]) -> None:
        for targets, sources in zip(to, what, strict=True):
            torch._foreach_copy_(targets, sources)


def _by_type(buffers: Iterable[Tensor]) -> list[list[Tensor]]:
    """Together with their like, so that a GPU copies each kind at once."""
    ordered = sorted(buffers, key=lambda buffer: str(buffer.dtype))
    return [list(alike) for _, alike in groupby(ordered, key=lambda buffer: buffer.dtype)]
