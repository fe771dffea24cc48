"""Margin softmax with one row per identity (Eq. 1), over all rows or a sample of them (PartialFC)."""

# Shapes: M rows of this process, S rows of a step, P rows of this process in the batch, B images of this process,
# G images of all processes, D dimensions.

import math
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from gif_core.heads.base import Head, HeadOutput
from gif_core.heads.margins import CombinedMargin
from gif_core.heads.row_sampling import draw_rows, ensure_step_count, row_states
from gif_core.heads.sharded_softmax import (
    Targets,
    count_once,
    gather,
    gather_features,
    margin_softmax,
    own_rank,
    processes,
    sum_of_processes,
)
from gif_core.runtime import gather_on_hosts, own_range, to_device

ROWS: Final = 505
"""Second part of the seed of the initial rows; no other random stream uses it."""
BLOCK: Final = 4096
"""Rows drawn from one seed."""
DEVIATION: Final = 0.01
"""Standard deviation of the initial weights."""


class ClassifierHead(Head):
    """-log softmax of s·cos(w_y, z) with a margin, over the rows of all processes.

    Every process holds a contiguous range of the rows and computes the loss of the whole batch. With a `sample_rate`
    below 1 a step uses only the rows of the batch's identities and a random sample of others (PartialFC): the
    optimizer sees only `sampled_SD`, and its state of every row is kept in buffers here between steps. All other rows
    stay unchanged.
    """

    sharded = True
    row_range: tuple[int, int]
    weight_MD: Tensor

    def __init__(
        self,
        num_identities: int,
        dim: int,
        *,
        margin: CombinedMargin,
        scale: float,
        sample_rate: float = 1.0,
        filter_above: float | None = None,
        seed: int = 0,
        start_ND: NDArray[np.floating[Any]] | None = None,
    ) -> None:
        """Initial rows are a function of the seed and the identity, independent of the number of processes.

        With `start_ND` they are these vectors, as long as random ones are on average. Negatives whose cosine exceeds
        `filter_above` are likely the same person under two labels and count as if it were 0.
        """
        super().__init__()
        if num_identities < processes():
            raise ValueError(f"{num_identities} identities cannot be divided among {processes()} processes")
        self.num_identities, self.margin, self.scale = num_identities, margin, scale
        self.sample_rate, self.filter_above, self.seed = sample_rate, filter_above, seed
        self.row_range = own_range(num_identities, own_rank(), processes())
        first, end = self.row_range
        rows_MD = initial_rows(first, end, dim, seed) if start_ND is None else rows_along(start_ND[first:end])
        self._states: tuple[str, ...] = ()
        self._optimizer: Optimizer | None = None
        self._rows_S: Tensor | None = None
        self._labels: NDArray[np.int64] = np.empty(0, np.int64)
        if self.samples:
            self.register_buffer("weight_MD", rows_MD)
            self.sampled_SD = nn.Parameter(torch.empty(0, dim))
        else:
            self.weight_MD = nn.Parameter(rows_MD)

    @property
    def samples(self) -> bool:
        """Whether a step uses only a sample of the rows (PartialFC)."""
        return self.sample_rate < 1

    def row_tensors(self) -> tuple[str, ...]:
        """The weights and, with sampling, the optimizer's state of each row."""
        return ("weight_MD", *(f"{name}_MD" for name in self._states))

    def forward(self, features_BD: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss of the batch of all processes, the same in each; in fp32 even under autocast."""
        with torch.autocast(device_type=features_BD.device.type, enabled=False):
            features_GD = gather_features(features_BD.to(self.weight_MD.dtype))
            targets, labels_G = self._find(labels_B)
            loss, cosine_G, top_G = self.softmax(features_GD, targets, labels_G)
        accuracy = (self.scale * cosine_G >= top_G).float().mean()
        return HeadOutput(loss, {"accuracy": accuracy, "cosine": cosine_G.mean()})

    def softmax(self, features_GD: Tensor, targets: Targets, labels_G: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of the batch of all processes, the cosine of each image to its class, and its largest logit."""
        norms_G = torch.linalg.vector_norm(features_GD, dim=1)
        self.margin.observe(norms_G.detach())
        loss, cosine_G, top_G = self.softmax_against(self.rows_in_use, features_GD, targets, norms_G=norms_G)
        penalty = self.margin.penalty(norms_G)
        return loss if penalty is None else loss + count_once(penalty), cosine_G, top_G

    def softmax_against(
        self,
        rows_MD: Tensor,
        features_GD: Tensor,
        targets: Targets,
        share_G: Tensor | None = None,
        norms_G: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Eq. 1 with this head's margin and scale against these rows; `share_G` weighs the images."""
        norms_G = torch.linalg.vector_norm(features_GD, dim=1) if norms_G is None else norms_G
        return margin_softmax(
            F.normalize(features_GD, dim=1),
            norms_G if self.margin.learns_norms else norms_G.detach(),
            rows_MD,
            targets,
            margin=self.margin,
            scale=self.scale,
            filter_above=self.filter_above,
            share_G=share_G,
        )

    @property
    def rows_in_use(self) -> Tensor:
        """The rows of a step: all of this process, or those that were drawn."""
        return self.sampled_SD if self.samples else self.weight_MD

    @property
    def largest_share(self) -> int:
        """The largest number of rows that any process holds."""
        return -(-self.num_identities // processes())

    def attach(self, optimizer: Optimizer) -> None:
        """With sampling, allocate buffers for the optimizer's state of every row."""
        if self.samples:
            self._optimizer, self._states = optimizer, row_states(optimizer)
            for name in self._states:
                self.register_buffer(f"{name}_MD", torch.zeros_like(self.weight_MD))

    def begin_step(self, labels_B: Tensor, step: int) -> None:
        """With sampling, draw the rows of the step and hand them to the optimizer."""
        if not self.samples:
            return
        if self._optimizer is None:
            raise RuntimeError("attach the optimizer before the first step")
        first, end = self.row_range
        labels_G = np.unique(gather_on_hosts(labels_B).numpy())
        positives_P = labels_G[(labels_G >= first) & (labels_G < end)] - first
        rows_S = draw_rows(end - first, positives_P, self.sample_rate, [self.seed, step, own_rank()])
        self._labels = labels_G
        self._rows_S = to_device(torch.from_numpy(rows_S), self.weight_MD.device)
        self.sampled_SD.grad = None
        self.sampled_SD.data = self.weight_MD[self._rows_S]
        ensure_step_count(self._optimizer, self.sampled_SD)
        for name in self._states:
            self._optimizer.state[self.sampled_SD][name] = self.get_buffer(f"{name}_MD")[self._rows_S]

    def end_step(self) -> None:
        """With sampling, write the rows and the optimizer's state of them back."""
        if self._rows_S is None or self._optimizer is None:
            return
        self.weight_MD[self._rows_S] = self.sampled_SD.data
        for name in self._states:
            self.get_buffer(f"{name}_MD")[self._rows_S] = self._optimizer.state[self.sampled_SD].pop(name)
        self.sampled_SD.grad = None
        self.sampled_SD.data = self.sampled_SD.data[:0].clone()
        self._rows_S = None

    @torch.no_grad()
    def rows_of(self, labels_B: Tensor) -> Tensor:
        """The unit rows of these identities, which other processes may hold."""
        targets, _ = self._find(labels_B)
        rows_GD = F.normalize(self.rows_in_use[targets.place_G], dim=1) * targets.mine_G[:, None]
        begin = own_rank() * len(labels_B)
        return sum_of_processes(rows_GD)[begin : begin + len(labels_B)]

    def places_of(self, labels_G: Tensor) -> Targets:
        """Where these classes are among all of this process's rows; nowhere for a label below 0."""
        first, end = self.row_range
        mine_G = (labels_G >= first) & (labels_G < end)
        return Targets((labels_G - first).clamp(0, end - first - 1), mine_G)

    def _find(self, labels_B: Tensor) -> tuple[Targets, Tensor]:
        """Where the true classes of all processes' images are among this process's rows of the step; and the labels."""
        labels_G = gather(to_device(labels_B, self.weight_MD.device))
        targets = self.places_of(labels_G)
        if not self.samples:
            return targets, labels_G
        if self._rows_S is None or not np.isin(labels_B.numpy(), self._labels).all():
            raise RuntimeError("call begin_step before a batch, with all of its identities")
        place_G = torch.searchsorted(self._rows_S, targets.place_G).clamp(max=len(self._rows_S) - 1)
        return Targets(place_G, targets.mine_G), labels_G


def rows_along(vectors_MD: NDArray[np.floating[Any]]) -> Tensor:
    """Rows in the directions of these vectors, as long as those of `initial_rows`."""
    directions_MD = F.normalize(torch.from_numpy(np.array(vectors_MD, np.float32)), dim=1)
    return directions_MD * (DEVIATION * math.sqrt(vectors_MD.shape[1]))


def initial_rows(first: int, end: int, dim: int, seed: int) -> Tensor:
    """Rows `first` to `end` of the initial weights: normal, each block of rows drawn from its own seed."""
    rows_MD = torch.empty(end - first, dim)
    for block in range(first // BLOCK, -(-end // BLOCK)):
        drawn = np.random.default_rng([seed, ROWS, block]).standard_normal((BLOCK, dim), dtype=np.float32)
        begin = block * BLOCK
        low, high = max(first, begin), min(end, begin + BLOCK)
        rows_MD[low - first : high - first] = torch.from_numpy(DEVIATION * drawn[low - begin : high - begin])
    return rows_MD
