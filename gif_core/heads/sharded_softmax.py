"""Margin softmax (Eq. 1) over the identities of all processes, of which each holds a range of the classifier's rows.

A single process communicates nothing. No function waits for the device.
"""

# Shapes: B images of this process, G images of all processes, M rows of this process, D dimensions.

from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from gif_core.heads.margins import CombinedMargin

CHUNK: Final = 16_384
"""Rows of a gradient processed at a time."""
SUM: Final = dist.ReduceOp.SUM


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
    return _reduce(share, SUM)


def gather_features(features_BD: Tensor) -> Tensor:
    """Features of all processes. Gradients are correct if those of the backbone are averaged over the processes."""
    if processes() == 1:
        return features_BD
    gathered_GD: Tensor = _GatherFeatures.apply(features_BD)  # type: ignore[no-untyped-call]
    return gathered_GD


def count_once(value: Tensor) -> Tensor:
    """A term that all processes compute alike from `gather_features`, with a gradient that counts only once."""
    return value.detach() + (value - value.detach()) / processes()


def mean_of_processes(values_B: Tensor) -> Tensor:
    """The mean over the images of all processes, whose gradient is right once that is averaged over the processes."""
    own = values_B.mean()
    return gather(values_B.detach()).mean() + (own - own.detach())


def margin_softmax(
    z_GD: Tensor,
    norms_G: Tensor,
    weight_MD: Tensor,
    targets: Targets,
    *,
    margin: CombinedMargin,
    scale: float,
    filter_above: float | None = None,
    share_G: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. 1, batch mean; and for each image the cosine to its class and the largest logit with margin.

    Other classes whose cosine exceeds `filter_above` count as if it were 0. With `share_G`, which sums to 1, the images
    have these weights in the mean.
    """
    loss, cosine_G, top_G = _MarginSoftmax.apply(  # type: ignore[no-untyped-call]
        z_GD, norms_G, weight_MD, targets, margin, scale, filter_above, share_G
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

    Rows are normalised by scaling the products, without a copy of the rows. Where negatives are changed, a second
    matrix holds the slopes of the change.
    """

    @staticmethod
    def forward(
        ctx: Any,
        z_GD: Tensor,
        norms_G: Tensor,
        weight_MD: Tensor,
        targets: Targets,
        margin: CombinedMargin,
        scale: float,
        filter_above: float | None,
        share_G: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        place_G1, mine_G = targets.place_G[:, None], targets.mine_G
        inverse_M = torch.linalg.vector_norm(weight_MD, dim=1).clamp_min_(1e-12).reciprocal_()
        matrix_GM = torch.mm(z_GD, weight_MD.T).mul_(scale * inverse_M)
        plain_G = matrix_GM.gather(1, place_G1)[:, 0]
        margined_G, slope_G, norm_slope_G = _value_and_slopes(margin, plain_G / scale, norms_G)
        slopes_GM = None
        if margin.changes_negatives or filter_above is not None:
            own_2G = torch.stack([margined_G * mine_G, plain_G * mine_G / scale])
            slopes_GM = _change_negatives(matrix_GM.div_(scale), margin, filter_above, *_reduce(own_2G, SUM))
            matrix_GM.mul_(scale)
        others_G = plain_G if slopes_GM is None else matrix_GM.gather(1, place_G1)[:, 0]
        margined_G = torch.where(mine_G, scale * margined_G, others_G)
        matrix_GM.scatter_(1, place_G1, margined_G[:, None])
        top_G = _reduce(matrix_GM.amax(dim=1), dist.ReduceOp.MAX)
        matrix_GM.sub_(top_G[:, None]).exp_()
        total_G, target_G, cosine_G = _reduce(
            torch.stack([matrix_GM.sum(dim=1), margined_G * mine_G, plain_G * mine_G / scale]), SUM
        )
        ctx.save_for_backward(
            z_GD, weight_MD, matrix_GM, inverse_M, total_G, slope_G, place_G1, mine_G, norm_slope_G, slopes_GM, share_G
        )
        ctx.scale = scale
        ctx.mark_non_differentiable(cosine_G, top_G)
        loss_G = total_G.log() + top_G - target_G
        return loss_G.mean() if share_G is None else loss_G @ share_G, cosine_G, top_G

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the loss by this process's rows, and their share of the gradient by the features."""
        z_GD, weight_MD, matrix_GM, inverse_M, total_G, slope_G, place_G1, mine_G, *optional = ctx.saved_tensors
        norm_slope_G, slopes_GM, share_G = optional
        own_G = matrix_GM.gather(1, place_G1)[:, 0] - total_G
        if slopes_GM is not None:
            matrix_GM.mul_(slopes_GM)
        others_G = matrix_GM.gather(1, place_G1)[:, 0]
        matrix_GM.scatter_(1, place_G1, torch.where(mine_G, own_G * slope_G, others_G)[:, None]).mul_(inverse_M)
        factor_G = gradient * ctx.scale / len(z_GD) / total_G
        if share_G is not None:
            factor_G = gradient * ctx.scale * share_G / total_G
        gradient_z_GD, gradient_norms_G, gradient_MD = None, None, None
        if ctx.needs_input_grad[0]:
            gradient_z_GD = torch.mm(matrix_GM, weight_MD) * factor_G[:, None]
        if ctx.needs_input_grad[1] and norm_slope_G is not None:
            gradient_norms_G = torch.where(mine_G, own_G * norm_slope_G * factor_G, 0)
        if ctx.needs_input_grad[2]:
            gradient_MD = torch.mm(matrix_GM.T, z_GD * factor_G[:, None])
            _remove_radial(gradient_MD, weight_MD, inverse_M)
        return gradient_z_GD, gradient_norms_G, gradient_MD, None, None, None, None, None


def _value_and_slopes(
    margin: CombinedMargin, cosine_G: Tensor, norms_G: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The cosine with margin, its derivative by the cosine and, if the margin learns norms, that by the norm."""
    with torch.enable_grad():
        cosine_G = cosine_G.detach().requires_grad_()
        norms_G = norms_G.detach().requires_grad_(margin.learns_norms)
        margined_G = margin(cosine_G, norms_G)
        slopes = torch.autograd.grad(margined_G.sum(), [cosine_G, norms_G] if margin.learns_norms else [cosine_G])
    return margined_G.detach(), slopes[0], slopes[1] if margin.learns_norms else None


def _change_negatives(
    cosines_GM: Tensor, margin: CombinedMargin, filter_above: float | None, target_G: Tensor, own_G: Tensor
) -> Tensor:
    """Change the cosines to other classes in place; the derivatives of the change."""
    found_GM = None if filter_above is None else cosines_GM > filter_above
    slopes_GM = margin.change_negatives(cosines_GM, target_G, own_G)
    if found_GM is not None:
        cosines_GM.masked_fill_(found_GM, 0)
        slopes_GM.masked_fill_(found_GM, 0)
    return slopes_GM


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
