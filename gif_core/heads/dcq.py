"""DCQ, dynamic class queue: class weights are features of other images from an average of the network."""

# Shapes: P pairs of this process, B = 2·P images, G pairs of all processes, Q features in the queue, D dimensions.

import torch
import torch.nn.functional as F
from torch import Tensor

from gif_core.heads.base import HeadOutput
from gif_core.heads.feature_queue import NOBODY, FeatureQueue
from gif_core.heads.pairs import PairHead
from gif_core.heads.sharded_softmax import gather
from gif_core.runtime import to_device


class DcqHead(PairHead):
    """-log softmax of s·(q·k - m) against s·q·k_j of the queue's keys of other identities, mean over pairs.

    q is the first image of a pair through the network, k the second through its average. Keys then join the queue,
    which every process holds whole. Its empty places are no negatives.
    """

    keys_apart = True
    publishes_average = True

    def __init__(self, dim: int, *, queue_size: int, scale: float, margin: float, average_decay: float) -> None:
        """The queue is empty at first."""
        super().__init__()
        self.scale, self.margin, self.average_decay = scale, margin, average_decay
        self.queue = FeatureQueue(queue_size, dim)

    def compare(self, features_PD: Tensor, keys_PD: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss of the queries, and how many of them are closest to their own key."""
        dtype, device = self.queue.features_QD.dtype, features_PD.device
        with torch.autocast(device_type=device.type, enabled=False):
            q_PD, k_PD = (F.normalize(each_PD.to(dtype), dim=1) for each_PD in (features_PD, keys_PD.detach()))
            labels_P = to_device(labels_B[0::2], device)
            own_P1 = (q_PD * k_PD).sum(dim=1, keepdim=True)
            excluded_PQ = (labels_P[:, None] == self.queue.labels_Q) | (self.queue.labels_Q == NOBODY)
            queue_QD = self.queue.features_QD.clone()  # the queue changes before the gradient is computed
            others_PQ = (q_PD @ queue_QD.T).masked_fill(excluded_PQ, -torch.inf)
            logits = self.scale * torch.cat([own_P1 - self.margin, others_PQ], dim=1)
            loss = F.cross_entropy(logits, torch.zeros_like(labels_P))
        self.queue.push(gather(k_PD), gather(labels_P))
        accuracy = (own_P1 > others_PQ).all(dim=1).float().mean()
        return HeadOutput(loss, {"accuracy": accuracy, "cosine": own_P1.detach().mean()})
