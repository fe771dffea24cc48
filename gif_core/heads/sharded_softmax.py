"""Margin softmax (Eq. 1) over the identities of all processes, of which each holds a range of the classifier's rows.

A single process communicates nothing. No function waits for the device.
"""

# Shapes: B images of this process, G images of all processes, M rows of this process, D dimensions.

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK: Final = 16_384
"""Rows of a gradient processed at a time."""

MarginFunction = Callable[[Tensor, Tensor], Tensor]


class Targets(NamedTuple):
    """Where the true classes of a batch are."""

    place_G: Tensor
    """Row of this process that holds the class; arbitrary if another process holds it."""
    mine_G: Tensor
    """Whether this process holds the class."""


def processes() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def own_rank() -> int:
    """Rank of this process."""
    return dist.get_rank() if dist.is_initialized() else 0


def gather(part_B: Tensor) -> Tensor:
    """Concatenate the equally sized parts of all processes in order of rank; without gradient."""
    if processes() == 1:
        return part_B
    parts = [torch.empty_like(part_B) for _ in range(processes())]
    dist.all_gather(parts, part_B.contiguous())
    return torch.cat(parts)


def sum_of_processes(share: Tensor) -> Tensor:
    """The sum of all processes' tensors, in place; without gradient."""
    return _reduce(share, dist.ReduceOp.SUM)


def gather_features(features_BD: Tensor) -> Tensor:
    """Features of all processes. Gradients are correct if those of the backbone are averaged over the processes."""
    if processes() == 1:
        return features_BD
    gathered_GD: Tensor = _GatherFeatures.apply(features_BD)  # type: ignore[no-untyped-call]
    return gathered_GD


def margin_softmax(
    z_GD: Tensor, norms_G: Tensor, weight_MD: Tensor, targets: Targets, *, margin: MarginFunction, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. 1, batch mean; and for each image the cosine to its class and the largest logit with margin."""
    loss, cosine_G, top_G = _MarginSoftmax.apply(  # type: ignore[no-untyped-call]
        z_GD, norms_G, weight_MD, targets, margin, scale
    )
    return loss, cosine_G, top_G


class _GatherFeatures(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features_BD: Tensor) -> Tensor:
        ctx.size = len(features_BD)
        return gather(features_BD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_GD: Tensor) -> Tensor:
        """Sum the gradients by each process's rows; the factor cancels the later average over the processes."""
        gradient_GD = gradient_GD.contiguous()
        dist.all_reduce(gradient_GD)
        start = own_rank() * ctx.size
        return gradient_GD[start : start + ctx.size] * processes()


class _MarginSoftmax(torch.autograd.Function):
    """Eq. 1 in one matrix [G, M], which holds logits, then exponentials, then their gradient.

    Rows are normalised by scaling the products, without a copy of the rows.
    """

    @staticmethod
    def forward(
        ctx: Any,
        z_GD: Tensor,
        norms_G: Tensor,
        weight_MD: Tensor,
        targets: Targets,
        margin: MarginFunction,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        place_G1, mine_G = targets.place_G[:, None], targets.mine_G
        inverse_M = torch.linalg.vector_norm(weight_MD, dim=1).clamp_min_(1e-12).reciprocal_()
        matrix_GM = torch.mm(z_GD, weight_MD.T).mul_(scale * inverse_M)
        plain_G = matrix_GM.gather(1, place_G1)[:, 0]
        margined_G, slope_G = _value_and_slope(margin, plain_G / scale, norms_G)
        margined_G = torch.where(mine_G, scale * margined_G, plain_G)
        matrix_GM.scatter_(1, place_G1, margined_G[:, None])
        top_G = _reduce(matrix_GM.amax(dim=1), dist.ReduceOp.MAX)
        matrix_GM.sub_(top_G[:, None]).exp_()
        total_G, target_G, cosine_G = _reduce(
            torch.stack([matrix_GM.sum(dim=1), margined_G * mine_G, plain_G * mine_G / scale]), dist.ReduceOp.SUM
        )
        ctx.save_for_backward(z_GD, weight_MD, matrix_GM, inverse_M, total_G, slope_G, place_G1, mine_G)
        ctx.scale = scale
        ctx.mark_non_differentiable(cosine_G, top_G)
        return (total_G.log() + top_G - target_G).mean(), cosine_G, top_G

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the loss by this process's rows, and their share of the gradient by the features."""
        z_GD, weight_MD, matrix_GM, inverse_M, total_G, slope_G, place_G1, mine_G = ctx.saved_tensors
        share_G = matrix_GM.gather(1, place_G1)[:, 0]
        share_G = torch.where(mine_G, (share_G - total_G) * slope_G, share_G)
        matrix_GM.scatter_(1, place_G1, share_G[:, None]).mul_(inverse_M)
        factor_G1 = (gradient * ctx.scale / len(z_GD) / total_G)[:, None]
        gradient_z_GD = torch.mm(matrix_GM, weight_MD) * factor_G1
        gradient_MD = torch.mm(matrix_GM.T, z_GD * factor_G1)
        _remove_radial(gradient_MD, weight_MD, inverse_M)
        return gradient_z_GD, None, gradient_MD, None, None, None


def _value_and_slope(margin: MarginFunction, cosine_G: Tensor, norms_G: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        cosine_G = cosine_G.detach().requires_grad_()
        margined_G = margin(cosine_G, norms_G)
        (slope_G,) = torch.autograd.grad(margined_G.sum(), cosine_G)
    return margined_G.detach(), slope_G


def _reduce(values: Tensor, how: Any) -> Tensor:
    if processes() > 1:
        dist.all_reduce(values, op=how)
    return values


def _remove_radial(gradient_MD: Tensor, weight_MD: Tensor, inverse_M: Tensor) -> None:
    """Remove the radial component of the gradient: the loss does not depend on a row's norm."""
    for start in range(0, len(weight_MD), CHUNK):
        part = slice(start, start + CHUNK)
        along_M = (gradient_MD[part] * weight_MD[part]).sum(dim=1) * inverse_M[part].square()
        gradient_MD[part].addcmul_(weight_MD[part], along_M[:, None], value=-1)
