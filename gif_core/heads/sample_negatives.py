"""Features of other images as negatives and positives, for any head: those of the batch, and a queue of recent ones.

A head compares an image with rows that stand for identities. Verification compares images with images; this term of the
loss does too, at a cost that does not depend on the number of identities.
"""

# Shapes: B images of this process, G images of all processes, Q features in the queue, O = G + Q features of images,
# P = 1 + O what may be a positive: the row of the identity, and features; D dimensions.

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gif_core.heads.sharded_softmax import gather, own_rank
from gif_core.runtime import to_device

NOBODY: Final = -1
"""Label of places in the queue that are still empty."""


class SampleNegatives(nn.Module):
    """-log softmax of s·(z·p - margin) against s·z·z_j of the features z_j of other identities, batch mean.

    p is the row w_y that stands for the image's identity in the head and, with `positives`, the feature of each other
    image of this identity: the loss of an image is the mean over all of them. Rows and other features are constants:
    gradients reach an image through its own feature only. So every process needs the features of the others and not
    their gradients, and the queue may be longer than a batch.
    """

    features_QD: Tensor
    labels_Q: Tensor
    next_place: Tensor

    def __init__(self, length: int, dim: int, *, scale: float, margin: float, positives: bool = True) -> None:
        """A queue of `length` features, which is empty at first."""
        super().__init__()
        self.scale, self.margin, self.positives = scale, margin, positives
        self.register_buffer("features_QD", torch.zeros(length, dim))
        self.register_buffer("labels_Q", torch.full((length,), NOBODY))
        self.register_buffer("next_place", torch.zeros((), dtype=torch.int64))

    def forward(self, features_BD: Tensor, labels_B: Tensor, own_BD: Tensor) -> Tensor:
        """The loss of un-normalised features of the identities `labels_B` (a CPU tensor), which join the queue.

        `own_BD` are the unit rows of these identities.
        """
        with torch.autocast(device_type=features_BD.device.type, enabled=False):
            z_BD = F.normalize(features_BD.float(), dim=1)
            own_B = to_device(labels_B, z_BD.device)
            batch_GD, labels_G = gather(z_BD.detach()), gather(own_B)
            others_OD = torch.cat([batch_GD, self.features_QD])
            labels_O = torch.cat([labels_G, self.labels_Q])
            same_BO = own_B[:, None] == labels_O
            logits_BO = self.scale * (z_BD @ others_OD.T)
            negatives_B1 = logits_BO.masked_fill(same_BO | (labels_O == NOBODY), -torch.inf).logsumexp(1, keepdim=True)
            logits_BP = self.scale * (z_BD * own_BD.detach()).sum(dim=1, keepdim=True)
            positive_BP = torch.ones_like(logits_BP, dtype=torch.bool)
            if self.positives:
                first = own_rank() * len(labels_B)
                same_BO[:, first : first + len(labels_B)].fill_diagonal_(False)
                logits_BP = torch.cat([logits_BP, logits_BO], dim=1)
                positive_BP = torch.cat([positive_BP, same_BO], dim=1)
            loss_BP = F.softplus(negatives_B1 - logits_BP + self.scale * self.margin) * positive_BP
            loss = (loss_BP.sum(dim=1) / positive_BP.sum(dim=1)).mean()
        self._remember(batch_GD, labels_G)
        return loss

    def _remember(self, batch_GD: Tensor, labels_G: Tensor) -> None:
        """Replace the oldest features."""
        length = len(self.labels_Q)
        batch_GD, labels_G = batch_GD[-length:], labels_G[-length:]
        places_G = (self.next_place + torch.arange(len(labels_G), device=labels_G.device)) % length
        self.features_QD[places_G] = batch_GD
        self.labels_Q[places_G] = labels_G
        self.next_place.add_(len(labels_G)).remainder_(length)
