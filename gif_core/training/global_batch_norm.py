"""Batch normalisation over the images of all processes: the result does not depend on how many there are.

PyTorch's SyncBatchNorm does this on GPUs only, and its host waits for the device in every layer, to drop the statistics
of processes without images. Here every process has as many images, and nobody waits.
"""

# Shapes: P processes, C channels.

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gif_core.runtime import ProcessGroup


def synchronise_batch_norm(model: nn.Module, group: ProcessGroup) -> nn.Module:
    """Let every layer of batch normalisation see the images of all processes; names of weights stay."""
    if group.size == 1:
        return model
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.__class__ = GlobalBatchNorm
    return model


class GlobalBatchNorm(_BatchNorm):
    """Mean and variance of a channel over all processes, each of which has as many images."""

    def forward(self, x: Tensor) -> Tensor:
        """In evaluation, what any batch normalisation does."""
        if not self.training:
            return super().forward(x)
        normalised, mean_C, variance_C = _Normalise.apply(x, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        self._remember(mean_C, variance_C, x.numel() // x.shape[1] * dist.get_world_size())
        return cast(Tensor, normalised)

    def _remember(self, mean_C: Tensor, variance_C: Tensor, count: int) -> None:
        """Running statistics as PyTorch keeps them: the variance without its bias."""
        momentum = cast(float, self.momentum)
        cast(Tensor, self.num_batches_tracked).add_(1)
        cast(Tensor, self.running_mean).lerp_(mean_C, momentum)
        cast(Tensor, self.running_var).lerp_(variance_C * count / (count - 1), momentum)

    def _check_input_dim(self, input: Tensor) -> None:
        pass


class _Normalise(torch.autograd.Function):
    """One message forward and one backward, and PyTorch's own kernels for what is long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_C: Tensor, bias_C: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        mean_C, variance_C = _moments_over_processes(x)
        ctx.save_for_backward(x, weight_C, mean_C, variance_C)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean_C, variance_C)
        normalised = torch.batch_norm(x, weight_C, bias_C, mean_C, variance_C, False, 0.0, eps, False)
        return normalised, mean_C, variance_C

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """With the means over all processes, dx = w/σ · (dy − mean(dy) − x̂ · mean(dy · x̂))."""
        x, weight_C, mean_C, variance_C = ctx.saved_tensors
        dy = gradients[0]
        _, dweight_C, dbias_C = torch.ops.aten.native_batch_norm_backward(
            dy, x, weight_C, mean_C, variance_C, None, None, False, ctx.eps, [False, True, True]
        )
        sums_2C = torch.stack([dweight_C, dbias_C])
        dist.all_reduce(sums_2C)
        mean_product_C, mean_dy_C = sums_2C / (x.numel() // x.shape[1] * dist.get_world_size())
        inverse_C = torch.rsqrt(variance_C + ctx.eps)
        of_dy_C = weight_C * inverse_C
        of_x_C = -of_dy_C * inverse_C * mean_product_C
        constant_C = -of_dy_C * mean_dy_C - of_x_C * mean_C
        of_dy, of_x, constant = (each_C.view(_beside(x)) for each_C in (of_dy_C, of_x_C, constant_C))
        dx = (dy * of_dy).addcmul_(x, of_x).add_(constant)
        return dx.to(x.dtype), dweight_C, dbias_C, None


def _moments_over_processes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel, from those of every process; in fp32 also where the batch has less."""
    others = [0, *range(2, x.ndim)]
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    mean_C = x.mean(others)
    variance_C = (x - mean_C.view(_beside(x))).square_().mean(others)
    own_2C = torch.stack([mean_C, variance_C])
    parts = [torch.empty_like(own_2C) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own_2C)
    means_PC, variances_PC = torch.stack(parts, 1)
    overall_C = means_PC.mean(0)
    return overall_C, (variances_PC + (means_PC - overall_C).square()).mean(0)


def _beside(x: Tensor) -> list[int]:
    """The shape in which a number per channel meets a batch."""
    return [1, -1] + [1] * (x.ndim - 2)
