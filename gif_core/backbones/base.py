"""Backbone, the base class of all networks, and gradient checkpointing."""

# Shapes: B images, D dimensions of a feature.

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
RunBlock = Callable[[nn.Module, Tensor], Tensor]


class Backbone(nn.Module):
    """Images [B, 3, 112, 112] to features [B, D], not normalised."""

    draws_random_numbers = False
    """Whether training uses PyTorch's global generators, which the trainer then seeds for every step."""
    _run_and_forget: RunBlock | None = None

    @property
    def gradient_checkpointing(self) -> bool:
        """Keep only the inputs of blocks and recompute each block in the backward pass.

        Same result with less memory and about a third more time.
        """
        return self._run_and_forget is not None

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, wanted: bool) -> None:
        self._run_and_forget = _forget_also_when_compiled() if wanted else None

    def run_blocks(self, blocks: Iterable[nn.Module], x: Tensor) -> Tensor:
        """Run the blocks in order, with gradient checkpointing in training if it is on."""
        run = self._run_and_forget if self.training else None
        for block in blocks:
            x = run(block, x) if run else block(x)
        return x


@cache
def _forget_also_when_compiled() -> RunBlock:
    """Checkpointing for compiled and uncompiled code: torch.compile traces `_leave_to_compiler` in its place.

    Built on first use: importing PyTorch's compiler takes seconds.
    """
    run: RunBlock = torch.compiler.disable(_run_and_forget)  # type: ignore[no-untyped-call]
    torch.compiler.substitute_in_graph(run)(_leave_to_compiler)
    return run


def _leave_to_compiler(block: nn.Module, x: Tensor) -> Tensor:
    """A compiled graph updates batch statistics only in the forward pass, even if it recomputes a block."""
    forgotten: Tensor = checkpoint(block, x, use_reentrant=False)
    return forgotten


def _run_and_forget(block: nn.Module, x: Tensor) -> Tensor:
    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _spare_statistics(block)

    forgotten: Tensor = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    return forgotten


@contextmanager
def _spare_statistics(block: nn.Module) -> Iterator[None]:
    """Restore the statistics of batch normalisation, so that a recomputed batch does not count twice."""
    kept = [
        (module, name, module._buffers[name])
        for module in block.modules()
        for name in STATISTICS
        if name in module._buffers
    ]
    for module, name, buffer in kept:
        module._buffers[name] = None if buffer is None else buffer.clone()
    try:
        yield
    finally:
        for module, name, buffer in kept:
            module._buffers[name] = buffer
