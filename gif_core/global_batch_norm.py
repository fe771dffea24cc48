"""Batch normalisation over the images of all processes: the result does not depend on how many there are.

PyTorch has this for GPUs; here is the same for CPUs.
"""

# Shapes: B images of this process, C channels.

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gif_core.process_group import ProcessGroup


def synchronise_batch_norm(model: nn.Module, group: ProcessGroup) -> nn.Module:
    """Let every layer of batch normalisation see the images of all processes; names of weights stay."""
    if group.size == 1:
        return model
    if group.device.type == "cuda":
        return cast(nn.Module, nn.SyncBatchNorm.convert_sync_batchnorm(model))  # type: ignore[no-untyped-call]
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
        others = [0, *range(2, x.ndim)]
        shape = [1, -1] + [1] * (x.ndim - 2)
        mean_C = _mean_over_processes(x.mean(others))
        centred = x - mean_C.view(shape)
        variance_C = _mean_over_processes(centred.square().mean(others))
        self._remember(mean_C.detach(), variance_C.detach(), x.numel() // x.shape[1] * dist.get_world_size())
        scaled: Tensor = centred * torch.rsqrt(variance_C + self.eps).view(shape)
        return scaled * self.weight.view(shape) + self.bias.view(shape)

    def _remember(self, mean_C: Tensor, variance_C: Tensor, count: int) -> None:
        """Running statistics as PyTorch keeps them: the variance without its bias."""
        momentum = cast(float, self.momentum)
        cast(Tensor, self.num_batches_tracked).add_(1)
        cast(Tensor, self.running_mean).lerp_(mean_C, momentum)
        cast(Tensor, self.running_var).lerp_(variance_C * count / (count - 1), momentum)

    def _check_input_dim(self, input: Tensor) -> None:
        pass


class _MeanOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, share: Tensor) -> Tensor:
        return _average(share)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _average(gradients[0])


def _mean_over_processes(share: Tensor) -> Tensor:
    return cast(Tensor, _MeanOverProcesses.apply(share))  # type: ignore[no-untyped-call]


def _average(share: Tensor) -> Tensor:
    total = share.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()
