"""The update of a step, which is skipped when the loss or the gradient is not finite.

A GPU's host does not ask whether it is: the decision stays on the device, where fused optimizers take it as
`found_inf`. On a CPU the host decides, which costs nothing there. The results are the same.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from gif_core.runtime import runs_behind
from gif_core.training.buffers import KeptBuffers


class GuardedUpdate:
    """Moves the weights, and counts skipped steps on the device."""

    def __init__(
        self, optimizers: Sequence[Optimizer], scaler: GradScaler, buffers: KeptBuffers, device: torch.device
    ) -> None:
        """`buffers` hold what a forward pass changes, as it was before the step."""
        self.optimizers, self.scaler, self.buffers = optimizers, scaler, buffers
        self.on_device = runs_behind(device)
        self.in_a_row = self.longest = torch.zeros((), device=device)

    def apply(self, finite: Tensor) -> Tensor:
        """Take the optimizers' steps if `finite`, else leave all as it was but the scale of fp16; 1 if skipped."""
        skipped = finite.logical_not()
        if self.on_device:
            self._apply_on_device(skipped)
        elif bool(skipped):
            self.buffers.restore()
        else:
            for optimizer in self.optimizers:
                optimizer.step()
        self._update_scale(skipped)
        self.in_a_row = (self.in_a_row + 1) * skipped
        self.longest = torch.maximum(self.longest, self.in_a_row)
        return skipped.float()

    def _apply_on_device(self, skipped: Tensor) -> None:
        for optimizer in self.optimizers:
            optimizer.found_inf = skipped.float()  # type: ignore[attr-defined]
            optimizer.step()
            del optimizer.found_inf  # type: ignore[attr-defined]
        self.buffers.restore(skipped)

    def _update_scale(self, skipped: Tensor) -> None:
        """Halve the scale of fp16 also after a step of which only the loss was not finite."""
        if not self.scaler.is_enabled():
            return
        for optimizer in self.optimizers:
            for found in self.scaler._found_inf_per_device(optimizer).values():
                found.copy_(skipped, non_blocking=True)
        self.scaler.update()
