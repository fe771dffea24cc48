"""GroupFace: a margin softmax on features that know which group of faces they belong to."""

# Shapes: B images of this process, K groups, D dimensions, E = D + K.

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gif_core.heads.base import HeadOutput
from gif_core.heads.classifier import ClassifierHead
from gif_core.heads.sharded_softmax import gather, mean_of_processes


class GroupFaceHead(ClassifierHead):
    """Margin softmax of the grouped feature, plus 0.1 times the cross entropy of the groups' probabilities.

    The network gives the feature and the logits of its groups side by side (`backbones.outputs`). Nobody knows the true
    group: it is the most probable one compared with the running mean of all probabilities, so that groups fill equally.
    """

    group_weight = 0.1
    pace = 0.01
    """Weight of a batch in the running mean."""
    mean_K: Tensor

    def __init__(self, num_identities: int, dim: int, *, groups: int, **settings: Any) -> None:
        """The other settings are those of ClassifierHead."""
        super().__init__(num_identities, dim, **settings)
        self.groups = groups
        self.register_buffer("mean_K", torch.full((groups,), 1 / groups))

    def forward(self, features_BE: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss of the batch of all processes, the same in each."""
        features_BE = features_BE.to(self.weight_MD.dtype)
        features_BD, logits_BK = features_BE[:, : -self.groups], features_BE[:, -self.groups :]
        output = super().forward(features_BD, labels_B)
        groups_B = self._assign_groups(logits_BK.detach())
        loss_groups = mean_of_processes(F.cross_entropy(logits_BK, groups_B, reduction="none"))
        metrics = {"loss_groups": loss_groups.detach()}
        return HeadOutput(output.loss + self.group_weight * loss_groups, output.metrics | metrics)

    def _assign_groups(self, logits_BK: Tensor) -> Tensor:
        """The largest of (p - E[p])/K + 1/K, with this batch already in the mean."""
        probabilities_BK = logits_BK.softmax(dim=1)
        if self.training:
            self.mean_K.lerp_(gather(probabilities_BK).mean(dim=0).to(self.mean_K.dtype), self.pace)
        return ((probabilities_BK - self.mean_K) / self.groups + 1 / self.groups).argmax(dim=1)
