"""Virtual FC: few anchors stand for all identities, in groups."""

# Shapes: M anchors of this process, G images of all processes, B images of this process, U identities of a step,
# D dimensions.

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from gif_core.heads.classifier import ClassifierHead
from gif_core.heads.sharded_softmax import Targets
from gif_core.runtime import gather_on_hosts, to_device
from schemas.errors import GifError


class VirtualFcHead(ClassifierHead):
    """Margin softmax over N anchors; identity y belongs to the group y mod N.

    Before the loss of a batch, the anchor of each of its identities becomes the sum of its features in the batch. If
    two identities of a batch share a group, the second borrows a free anchor, which is given back after the step.
    """

    def __init__(self, num_anchors: int, dim: int, **settings: Any) -> None:
        """The settings are those of ClassifierHead."""
        super().__init__(num_anchors, dim, **settings)
        self._anchors: NDArray[np.int64] = np.empty(0, np.int64)
        self._borrowed: tuple[Tensor, Tensor] | None = None

    def attach(self, optimizer: Optimizer) -> None:
        """Show the anchors as a buffer as well: a forward pass changes them, and a skipped step restores buffers."""
        self.register_buffer("changed_by_forward", self.weight_MD.data, persistent=False)

    def begin_step(self, labels_B: Tensor, step: int) -> None:
        """Assign an anchor to each identity of the step, and keep the anchors that are borrowed."""
        self._labels = np.unique(gather_on_hosts(labels_B).numpy())
        self._anchors, is_borrowed = assign_anchors(self._labels, self.num_identities)
        first, end = self.row_range
        own = self._anchors[is_borrowed & (self._anchors >= first) & (self._anchors < end)] - first
        places = to_device(torch.from_numpy(own), self.weight_MD.device)
        self._borrowed = places, self.weight_MD.data[places]

    def end_step(self) -> None:
        """Give the borrowed anchors back."""
        if self._borrowed is not None:
            places, rows_MD = self._borrowed
            self.weight_MD.data[places] = rows_MD
            self._borrowed = None

    def softmax(self, features_GD: Tensor, targets: Targets, labels_G: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss after the anchors of the batch have become the sums of its features."""
        self._fill_anchors(features_GD.detach(), targets)
        return super().softmax(features_GD, targets, labels_G)

    @torch.no_grad()
    def _fill_anchors(self, features_GD: Tensor, targets: Targets) -> None:
        mine_G1 = targets.mine_G[:, None].to(features_GD.dtype)
        sums_MD = torch.zeros_like(self.weight_MD.data).index_add_(0, targets.place_G, features_GD * mine_G1)
        counts_M1 = sums_MD.new_zeros(len(sums_MD), 1).index_add_(0, targets.place_G, mine_G1)
        self.weight_MD.data.copy_(torch.where(counts_M1 > 0, sums_MD, self.weight_MD.data))

    def _find(self, labels_B: Tensor) -> tuple[Targets, Tensor]:
        """Where the anchors of all processes' images are; and the anchors."""
        if not np.isin(labels_B.numpy(), self._labels).all():
            raise RuntimeError("call begin_step before a batch, with all of its identities")
        anchors_B = self._anchors[np.searchsorted(self._labels, labels_B.numpy())]
        return super()._find(torch.from_numpy(anchors_B))


def assign_anchors(labels_U: NDArray[np.int64], num_anchors: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The anchor of each identity, and whether it is borrowed: the first of a group gets its own, others free ones."""
    if len(labels_U) > num_anchors:
        raise GifError(
            f"a step has {len(labels_U)} identities and virtual_fc {num_anchors} anchors: raise training.anchors or "
            "training.images_per_identity, or lower training.batch_size"
        )
    groups_U = labels_U % num_anchors
    taken, first_U = np.unique(groups_U, return_index=True)
    is_borrowed = np.ones(len(labels_U), np.bool_)
    is_borrowed[first_U] = False
    free = np.setdiff1d(np.arange(num_anchors), taken)
    groups_U[is_borrowed] = free[: is_borrowed.sum()]
    return groups_U, is_borrowed
