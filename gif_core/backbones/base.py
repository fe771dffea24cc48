"""What all backbones can do: run their blocks, and give memory back between forward and backward."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class Backbone(nn.Module):
    """Images [B, 3, 112, 112] to features [B, D], not normalised."""

    gradient_checkpointing = False
    """Keep the inputs of blocks alone and compute each block again in the backward pass: the same result for less
    memory and about a third more time."""

    def run_blocks(self, blocks: Iterable[nn.Module], x: Tensor) -> Tensor:
        """One block after the other."""
        forget = self.gradient_checkpointing and self.training
        for block in blocks:
            x = _run_and_forget(block, x) if forget else block(x)
        return x


def _run_and_forget(block: nn.Module, x: Tensor) -> Tensor:
    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _spare_statistics(block)

    forgotten: Tensor = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    return forgotten


@contextmanager
def _spare_statistics(block: nn.Module) -> Iterator[None]:
    """Batch normalisation that sees a batch for the second time must not count it twice."""
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
