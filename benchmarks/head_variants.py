"""Variants of the head that were tried and are not in the project, for `scale.py vectors --heads gif+VARIANT`.

row_momentum, row_adam, row_wise_adam   other optimizers of the rows that learn, on the schedule of the network
row_rms                                 … the gradient over its root mean square
row_front                               … the project's own, whose rate does not rise
log_q                                   drawn negatives weighted by how many they stand for
tree                                    margin softmax along the tree of codes on the feature itself, instead of L_C
retokenize                              codes made again from the rows, at one and two thirds of the training
"""

# Shapes: M identities, S rows in use, B images in a batch, D dimensions, L code length, V vocab size, T nodes.

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from gif_core.heads import Head
from gif_core.heads.code_vectors import SMALLEST, LivingVectors, RowWiseAdagrad
from gif_core.heads.factory import build_sample_negatives
from gif_core.heads.gif import GifHead, draw_identities, margin_loss
from schemas.training import TrainingConfig

Codes = NDArray[np.int32]


def build_variant(name: str, config: TrainingConfig, codes: Codes, vectors: NDArray[np.float32], seed: int) -> Head:
    """The head with one thing changed."""
    kinds: dict[str, type[GifHead]] = {"log_q": LogQHead, "tree": TreeHead}
    head = kinds.get(name, GifHead)(codes, vectors, config, num_values=int(codes.max()) + 1, seed=seed)
    if name in ROW_OPTIMIZERS:
        assert isinstance(head.vectors, LivingVectors)
        head.vectors.optimizer = ROW_OPTIMIZERS[name](head.vectors, config.row_rate)
    if config.sample_negatives:
        head.sample_negatives = build_sample_negatives(config, vectors.shape[1])
    return head


class RowMomentum(RowWiseAdagrad):
    """SGD with momentum on the tangential gradient; as much state as there are rows."""

    def __init__(self, vectors: LivingVectors, rate: float) -> None:
        super().__init__(vectors, rate)
        self.velocity_MD = torch.zeros_like(vectors.weight_MD)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the rows in use."""
        rows_SD, used_S = self.vectors.sampled_SD, torch.from_numpy(self.vectors.used_S)
        assert rows_SD.grad is not None
        tangential_SD = rows_SD.grad - (rows_SD.grad * rows_SD).sum(dim=1, keepdim=True) * rows_SD
        move_SD = self.direction(tangential_SD, used_S)
        rows_SD.copy_(F.normalize(rows_SD - self.param_groups[0]["lr"] * move_SD, dim=1))

    def direction(self, gradient_SD: Tensor, used_S: Tensor) -> Tensor:
        """The direction of the move, before the rate."""
        velocity_SD = 0.9 * self.velocity_MD[used_S] + gradient_SD
        self.velocity_MD[used_S] = velocity_SD
        return velocity_SD


class RowAdam(RowMomentum):
    """Adam with both moments of every number, and the count of steps of every row."""

    def __init__(self, vectors: LivingVectors, rate: float) -> None:
        super().__init__(vectors, rate)
        self.second_MD = torch.zeros_like(self.velocity_MD)
        self.steps_M = torch.zeros(len(self.velocity_MD), 1)

    def square(self, gradient_SD: Tensor) -> Tensor:
        """What the second moment averages."""
        return gradient_SD.square()

    def direction(self, gradient_SD: Tensor, used_S: Tensor) -> Tensor:
        """The mean gradient over its root mean square."""
        steps_S = self.steps_M[used_S] + 1
        mean_SD = 0.9 * self.velocity_MD[used_S] + 0.1 * gradient_SD
        second_SD = 0.999 * self.second_MD[used_S] + 0.001 * self.square(gradient_SD)
        self.steps_M[used_S], self.velocity_MD[used_S], self.second_MD[used_S] = steps_S, mean_SD, second_SD
        return mean_SD / (1 - 0.9**steps_S) / (second_SD / (1 - 0.999**steps_S)).sqrt().clamp_min(SMALLEST)


class RowRms(RowAdam):
    """Moves of the same angle at any time: the gradient over its root mean square, with one number of state per row."""

    def direction(self, gradient_SD: Tensor, used_S: Tensor) -> Tensor:
        """The gradient over the root of its mean square."""
        steps_S = self.steps_M[used_S] + 1
        square_SD = gradient_SD.square().sum(dim=1, keepdim=True).expand_as(gradient_SD)
        second_SD = 0.999 * self.second_MD[used_S] + 0.001 * square_SD
        self.steps_M[used_S], self.second_MD[used_S] = steps_S, second_SD
        return gradient_SD / (second_SD / (1 - 0.999**steps_S)).sqrt().clamp_min(SMALLEST)


class RowWiseAdam(RowAdam):
    """Adam with one second moment per row."""

    def square(self, gradient_SD: Tensor) -> Tensor:
        """The squared length of the row's gradient, so that the rate is the tangent of an angle."""
        return gradient_SD.square().sum(dim=1, keepdim=True).expand_as(gradient_SD)


ROW_OPTIMIZERS: dict[str, Callable[[LivingVectors, float], RowWiseAdagrad]] = {
    "row_front": RowWiseAdagrad,
    "row_rms": RowRms,
    "row_momentum": RowMomentum,
    "row_adam": RowAdam,
    "row_wise_adam": RowWiseAdam,
}


class LogQHead(GifHead):
    """Adds log(1/q) to the logits of drawn negatives, q the chance of being drawn: their sum estimates that of all."""

    def begin_step(self, labels_B: Tensor, step: int) -> None:
        """Remember which rows are there by chance."""
        super().begin_step(labels_B, step)
        drawn = draw_identities(len(self.codes_NL), self.config.negatives, seed=self.seed, step=step)
        by_chance_S = np.isin(self.vectors.used_S, drawn) & ~np.isin(self.vectors.used_S, labels_B.numpy())
        others = len(self.codes_NL) - len(np.unique(labels_B.numpy()))
        self.bonus_S = torch.from_numpy(by_chance_S) * math.log(others / max(1, by_chance_S.sum()))

    def _alignment_loss(self, z_BD: Tensor, labels_B: Tensor) -> tuple[Tensor, Tensor]:
        place_B, scale = self.vectors.find(labels_B), self.config.alignment_scale
        cosines_BS = z_BD @ self.place(self.vectors.rows()).T
        alignment_B = cosines_BS.gather(1, place_B[:, None])[:, 0]
        weighted_BS = cosines_BS + self.bonus_S.float() / scale
        return margin_loss(weighted_BS, place_B, scale=scale, margin=self.config.alignment_margin), alignment_B


class TreeHead(GifHead):
    """L_C is the margin softmax of z against the children of the true parent, at every level of the tree.

    A node's prototype is the mean of the rows below it, taken anew every 100 steps.
    """

    def __init__(self, codes_NL: Codes, vectors: NDArray[np.float32], config: TrainingConfig, **rest: int) -> None:
        super().__init__(codes_NL, vectors, config, **rest)
        nodes = [np.zeros(len(codes_NL), np.int64)]
        self.children: list[Tensor] = []
        for level in range(1, codes_NL.shape[1] + 1):
            _, node_M = np.unique(codes_NL[:, :level], axis=0, return_inverse=True)
            table_TV = np.full((nodes[-1].max() + 1, rest["num_values"]), -1)
            table_TV[nodes[-1], codes_NL[:, level - 1]] = node_M
            self.children.append(torch.from_numpy(table_TV))
            nodes.append(node_M)
        self.nodes = [torch.from_numpy(node_M) for node_M in nodes]
        self.means: list[Tensor] = []

    def begin_step(self, labels_B: Tensor, step: int) -> None:
        """Take the means of the rows now and then."""
        super().begin_step(labels_B, step)
        self.labels_B = labels_B
        if step % 100 == 0:
            assert isinstance(self.vectors, LivingVectors)
            with torch.no_grad():
                self.means = [self._mean(node_M, self.place(self.vectors.weight_MD)) for node_M in self.nodes[1:]]

    @staticmethod
    def _mean(node_M: Tensor, rows_MD: Tensor) -> Tensor:
        sums_TD = torch.zeros(int(node_M.max()) + 1, rows_MD.shape[1]).index_add_(0, node_M, rows_MD)
        return F.normalize(sums_TD, dim=1)

    def token_cosines(self, z_BD: Tensor) -> Tensor:
        """Cosines with the children of the true parent; -1 where there is no such child."""
        levels = []
        for above_M, table_TV, means_TD in zip(self.nodes, self.children, self.means, strict=False):
            child_BV = table_TV[above_M[self.labels_B]]
            cosines_BV = torch.einsum("bd,bvd->bv", z_BD, means_TD[child_BV.clamp_min(0)])
            levels.append(cosines_BV.masked_fill(child_BV < 0, -1))
        return torch.stack(levels)


def retokenize(head: Head, make: Callable[[NDArray[np.float32]], Codes]) -> None:
    """Make codes again from the rows as they are; values keep their meaning as far as the groups are the same."""
    assert isinstance(head, GifHead)
    assert isinstance(head.vectors, LivingVectors)
    with torch.no_grad():
        rows_MD = head.place(head.vectors.weight_MD)
    head.codes_NL = keep_values(head.codes_NL, make(rows_MD.numpy()))


def keep_values(old_ML: NDArray[np.integer], new_ML: Codes) -> Codes:
    """Rename the values of the new codes, under each parent, to those that most of its identities had before."""
    renamed_ML, values = np.empty_like(new_ML), int(max(old_ML.max(), new_ML.max())) + 1
    for level in range(new_ML.shape[1]):
        _, parent_M = np.unique(new_ML[:, :level], axis=0, return_inverse=True) if level else (0, np.zeros(len(new_ML)))
        order_M = np.argsort(parent_M, kind="stable")
        for rows in np.split(order_M, np.flatnonzero(np.diff(parent_M[order_M])) + 1):
            common_VV = np.zeros((values, values))
            np.add.at(common_VV, (new_ML[rows, level], old_ML[rows, level]), 1)
            renamed_ML[rows, level] = linear_sum_assignment(-common_VV)[1][new_ML[rows, level]]
    return renamed_ML
