"""DUL for classification: a feature is a normal distribution, whose mean is the feature that is tested."""

# Shapes: B images of this process, D dimensions, E = 2·D.

import torch
from torch import Tensor

from gif_core.heads.base import HeadOutput
from gif_core.heads.classifier import ClassifierHead
from gif_core.heads.sharded_softmax import mean_of_processes


class DulHead(ClassifierHead):
    """Margin softmax of a sample μ + ε·σ, plus λ·KL(N(μ, σ²) ‖ N(0, 1)).

    The network gives μ and log σ² side by side (`backbones.outputs`); the divergence is summed over dimensions.
    """

    draws_random_numbers = True
    divergence_weight = 0.01

    def forward(self, features_BE: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss of the batch of all processes, the same in each."""
        with torch.autocast(device_type=features_BE.device.type, enabled=False):
            mean_BD, log_variance_BD = features_BE.to(self.weight_MD.dtype).chunk(2, dim=1)
            deviation_BD = (0.5 * log_variance_BD).exp()
            output = super().forward(mean_BD + self.draw_noise(deviation_BD) * deviation_BD, labels_B)
            divergence = mean_of_processes(divergence_from_normal(mean_BD, log_variance_BD))
        metrics = {"divergence": divergence.detach(), "deviation": deviation_BD.detach().mean()}
        return HeadOutput(output.loss + self.divergence_weight * divergence, output.metrics | metrics)

    def draw_noise(self, like_BD: Tensor) -> Tensor:
        """ε, drawn from the generator that training seeds for every step and process."""
        return torch.randn_like(like_BD)


def divergence_from_normal(mean_BD: Tensor, log_variance_BD: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) = ½ Σ (μ² + σ² - log σ² - 1), of each image."""
    return 0.5 * (mean_BD.square() + log_variance_BD.exp() - log_variance_BD - 1).sum(dim=1)
