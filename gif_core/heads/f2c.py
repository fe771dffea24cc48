"""F²C, faster face classification: a pool of class centres from an average of the network, and hard negatives."""

# Shapes: B images of this process, A images of one side of the pairs, G of all processes, P slots of the pool,
# K hardest, D dimensions.

import torch
import torch.nn.functional as F
from torch import Tensor

from gif_core.heads.base import HeadOutput
from gif_core.heads.class_pool import NOBODY, ClassPool
from gif_core.heads.pairs import PairHead
from gif_core.heads.sharded_softmax import gather, processes, sum_of_processes
from gif_core.runtime import to_device


class F2cHead(PairHead):
    """CosFace against the pool where it holds the image's identity, else the mean of the largest cosines, above 0.

    Pairs are compared both ways. First the seconds' keys join the pool for the firsts' loss and leave it again; then
    the firsts' keys join it to stay, for the loss of the seconds. Each loss is taken against the first centres, and
    against the second ones of the identities that have just been inserted and have two. The means over images inside
    and outside of the pool are over all processes. Empty slots are no negatives.
    """

    keys_apart = False
    publishes_average = False

    def __init__(
        self, dim: int, *, slots: int, hardest: int, scale: float, margin: float, average_decay: float
    ) -> None:
        """The pool has `slots` identities; `hardest` is the number of cosines pushed down."""
        super().__init__()
        self.scale, self.margin, self.average_decay = scale, margin, average_decay
        self.hardest = min(hardest, slots)
        self.pool = ClassPool(slots, dim)

    def compare(self, features_PD: Tensor, keys_PD: Tensor, labels_B: Tensor) -> HeadOutput:
        """The sum of both directions."""
        dtype, device = self.pool.centres.dtype, features_PD.device
        with torch.autocast(device_type=device.type, enabled=False):
            z_BD, k_BD = (F.normalize(each.to(dtype), dim=1) for each in (features_PD, keys_PD.detach()))
            own_B = to_device(labels_B, device)
            first, second = slice(0, None, 2), slice(1, None, 2)
            inserted = self.pool.insert(gather(own_B[second].contiguous()), gather(k_BD[second].contiguous()))
            loss_firsts, _ = self._probe_loss(z_BD[first], own_B[first], inserted.is_double_P)
            self.pool.undo(inserted)
            inserted = self.pool.insert(gather(own_B[first].contiguous()), gather(k_BD[first].contiguous()))
            loss_seconds, inside = self._probe_loss(z_BD[second], own_B[second], inserted.is_double_P)
        cosine = (z_BD[first] * k_BD[second]).sum(dim=1).detach().mean()
        return HeadOutput(loss_firsts + loss_seconds, {"in_pool": inside, "cosine": cosine})

    def _probe_loss(self, z_AD: Tensor, labels_A: Tensor, is_double_P: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of probes against both sets of centres; and the share whose identity is in the pool."""
        place_A, inside_A = self.pool.find(labels_A)
        counts = sum_of_processes(torch.stack([inside_A.sum(), (~inside_A).sum()]))
        shares = processes() / counts.clamp(min=1).to(z_AD.dtype)  # the trainer averages over processes
        first_PD, second_PD = self.pool.centres[:, :-1].clone()  # they change before the gradient is computed
        first_AP = z_AD @ first_PD.T
        second_AP = torch.where(is_double_P, z_AD @ second_PD.T, first_AP)
        loss = z_AD.new_zeros(())
        for cosines_AP in (first_AP, second_AP):
            margins_AP = F.one_hot(place_A, cosines_AP.shape[1]) * (self.margin * inside_A[:, None])
            logits_AP = (self.scale * (cosines_AP - margins_AP)).masked_fill(self.pool.labels_P == NOBODY, -torch.inf)
            target_A = self.scale * (cosines_AP.gather(1, place_A[:, None])[:, 0] - self.margin)
            classified_A = logits_AP.logsumexp(dim=1) - target_A
            hardest_AK = logits_AP.topk(self.hardest, dim=1).values / self.scale
            pushed_A = hardest_AK.clamp(min=0).mean(dim=1)
            loss = loss + torch.stack([(classified_A * inside_A).sum(), (pushed_A * ~inside_A).sum()]) @ shares
        return loss, inside_A.float().mean()
