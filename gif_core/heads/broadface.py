"""BroadFace: the rows of a classifier also learn from features of earlier images."""

# Shapes: M rows of this process, G images of all processes, Q features in the queue, E = Q + G, D dimensions.

from typing import Any, Final

import torch
from torch import Tensor

from gif_core.heads.classifier import ClassifierHead
from gif_core.heads.feature_queue import FeatureQueue
from gif_core.heads.sharded_softmax import Targets, sum_of_processes

LOGITS: Final = 2**26
"""Logits of earlier images held at a time: 256 MiB."""


class BroadFaceHead(ClassifierHead):
    """CE(z, constant rows) + CE(constant features, rows), where the second mean is over the batch and a queue.

    The features of the queue are moved as their identities' rows have moved since: z* = z + ‖z‖/‖w_old‖·(w - w_old).
    Every process holds the whole queue; the logits of earlier images against its rows are computed in parts, and their
    gradient with them.
    """

    def __init__(self, num_identities: int, dim: int, *, queue_size: int, **settings: Any) -> None:
        """The settings are those of ClassifierHead."""
        super().__init__(num_identities, dim, **settings)
        self.queue = FeatureQueue(queue_size, dim, with_rows=True)

    def softmax(self, features_GD: Tensor, targets: Targets, labels_G: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of both terms, and what the first says about the batch."""
        rows_MD = self.weight_MD
        loss, cosine_G, top_G = self.softmax_against(rows_MD.detach(), features_GD, targets)
        batch_GD = features_GD.detach()
        all_ED = torch.cat([self._compensated_features(), batch_GD])
        labels_E = torch.cat([self.queue.labels_Q, labels_G])
        broad = self._row_loss(all_ED, labels_E)
        self.queue.push(batch_GD, labels_G, self._rows(targets))
        return loss + broad, cosine_G, top_G

    @torch.no_grad()
    def _compensated_features(self) -> Tensor:
        """Earlier features where the rows of their identities have taken them; zero where the queue is empty."""
        old_QD, features_QD = self.queue.rows_QD, self.queue.features_QD
        moved_QD = self._rows(self.places_of(self.queue.labels_Q)) - old_QD
        lengths_Q1, old_Q1 = (
            torch.linalg.vector_norm(each_QD, dim=1, keepdim=True) for each_QD in (features_QD, old_QD)
        )
        return torch.addcmul(features_QD, moved_QD, lengths_Q1 / old_Q1.clamp_min(1e-12))

    def _rows(self, targets: Targets) -> Tensor:
        """The rows of these classes, whichever process holds them; zero for an empty place of the queue."""
        return sum_of_processes(self.weight_MD.detach()[targets.place_G] * targets.mine_G[:, None])

    def _row_loss(self, features_ED: Tensor, labels_E: Tensor) -> Tensor:
        """The mean loss of constant features, whose gradient by the rows is computed part by part."""
        share_E = (labels_E >= 0).to(features_ED.dtype)
        share_E /= share_E.sum()
        rows_MD = self.weight_MD.detach().requires_grad_()
        gradient_MD, total = torch.zeros_like(rows_MD), features_ED.new_zeros(())
        size = max(LOGITS // max(self.largest_share, 1), 1)
        parts = [slice(start, start + size) for start in range(0, len(labels_E), size)]
        with torch.enable_grad():
            for part in parts:
                targets = self.places_of(labels_E[part])
                loss, _, _ = self.softmax_against(rows_MD, features_ED[part], targets, share_E[part])
                gradient_MD += torch.autograd.grad(loss, rows_MD)[0]
                total += loss.detach()
        return total + ((self.weight_MD - self.weight_MD.detach()) * gradient_MD).sum()
