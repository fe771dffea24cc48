"""Networks whose output in training is more than the feature: what DUL and GroupFace learn from.

In evaluation they give the feature alone, so that they are embedded, exported and evaluated like any backbone.
"""

# Shapes: B images, C channels, H height, W width, D dimensions, K groups, E numbers of the output in training.

import torch
from torch import Tensor, nn

from gif_core.backbones.base import Backbone
from gif_core.backbones.factory import build_backbone


class UncertainBackbone(Backbone):
    """DUL: mean μ and log σ² of a feature from one network with two outputs [B, 2·D]; in evaluation μ."""

    def __init__(self, trunk: Backbone, dim: int) -> None:
        """`trunk` has an output of 2·D numbers."""
        super().__init__()
        self.trunk, self.dim = trunk, dim
        self.draws_random_numbers = trunk.draws_random_numbers

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """μ and log σ² side by side, or μ."""
        output_BE: Tensor = self.trunk(images_BCHW)
        return output_BE if self.training else output_BE[:, : self.dim]


class GroupedBackbone(Backbone):
    """GroupFace: v + Σ p_k·v_k, with the feature v of a network, v_k = W_k·v of each group, and p from a small network.

    In training the logits of p follow the feature: [B, D + K].
    """

    def __init__(self, trunk: Backbone, dim: int, groups: int) -> None:
        """`trunk` has an output of D numbers."""
        super().__init__()
        self.trunk, self.groups = trunk, groups
        self.draws_random_numbers = trunk.draws_random_numbers
        self.group_features = nn.Linear(dim, groups * dim)
        self.group_decision = nn.Sequential(nn.Linear(dim, dim // 2), nn.ReLU(), nn.Linear(dim // 2, groups))

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The grouped feature, and in training the logits of the groups; in fp32 even under autocast."""
        feature_BD = self.trunk(images_BCHW)
        with torch.autocast(feature_BD.device.type, enabled=False):
            feature_BD = feature_BD.float()
            logits_BK = self.group_decision(feature_BD)
            groups_BKD = self.group_features(feature_BD).unflatten(1, (self.groups, -1))
            grouped_BD = feature_BD + torch.einsum("bk,bkd->bd", logits_BK.softmax(dim=1), groups_BKD)
        return torch.cat([grouped_BD, logits_BK], dim=1) if self.training else grouped_BD


def build_network(
    name: str, dim: int, *, head: str = "gif", groups: int = 32, gradient_checkpointing: bool = False
) -> Backbone:
    """The network that a head is trained with: the backbone `name`, with a further output for DUL and GroupFace."""
    trunk = build_backbone(name, 2 * dim if head == "dul" else dim, gradient_checkpointing=gradient_checkpointing)
    if head == "dul":
        return UncertainBackbone(trunk, dim)
    if head == "groupface":
        return GroupedBackbone(trunk, dim, groups)
    return trunk
