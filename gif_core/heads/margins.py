"""Margins on the cosine of the true class (Eq. 1): ArcFace, CosFace, SphereFace and AdaFace."""

# Shapes: G images of the batch of all processes.

import math
from typing import Final

import torch
from torch import Tensor, nn

NEAR_ONE: Final = 1 - 1e-6
"""Cosines are clamped to ± this: the derivative of the arc cosine is infinite at 1."""


class CombinedMargin(nn.Module):
    """cos(m1·θ + m2) - m3: ArcFace is (1, m, 0), CosFace (1, 0, m), SphereFace (m, 0, 0).

    Beyond an angle of π the cosine would rise again. It is continued monotonically, as in SphereFace:
    (-1)^k cos(angle) - 2k in the k-th half turn.
    """

    def __init__(self, m1: float, m2: float, m3: float) -> None:
        super().__init__()
        if m1 < 1 or m2 < 0 or m3 < 0:
            raise ValueError(f"margins ({m1}, {m2}, {m3}): m1 must be at least 1, m2 and m3 at least 0")
        self.m1, self.m2, self.m3 = m1, m2, m3

    def observe(self, norms_G: Tensor) -> None:
        """Take the feature norms of a batch into account; these margins do not depend on them."""

    def forward(self, cosine_G: Tensor, norms_G: Tensor) -> Tensor:
        """The cosine of the true class with its margin, never above the cosine without."""
        if self.m1 == 1 and self.m2 == 0:
            return cosine_G - self.m3
        angle_G = self.m1 * torch.acos(cosine_G.clamp(-NEAR_ONE, NEAR_ONE)) + self.m2
        turns_G = torch.floor(angle_G.detach() / math.pi)
        return (1 - 2 * (turns_G % 2)) * torch.cos(angle_G) - 2 * turns_G - self.m3


class AdaptiveMargin(CombinedMargin):
    """AdaFace: cos(θ - m·ẑ) - m·(1 + ẑ), where ẑ in [-1, 1] is the normalised feature norm.

    ẑ = h·(‖z‖ - μ)/σ with the running mean and standard deviation of the norms. The norm stands for image quality:
    good images get more of CosFace's margin, poor ones more of ArcFace's.
    """

    EPSILON: Final = 1e-3
    LONGEST: Final = 100.0
    mean: Tensor
    deviation: Tensor

    def __init__(self, margin: float, *, concentration: float = 0.333, pace: float = 0.01) -> None:
        """`concentration` is AdaFace's h; `pace` is the weight of a batch in the running statistics."""
        super().__init__(1.0, 0.0, margin)
        self.margin, self.concentration, self.pace = margin, concentration, pace
        self.register_buffer("mean", torch.tensor(20.0))
        self.register_buffer("deviation", torch.tensor(100.0))

    @torch.no_grad()
    def observe(self, norms_G: Tensor) -> None:
        """Update the running statistics during training."""
        if self.training and len(norms_G) > 1:
            safe_G = norms_G.clamp(self.EPSILON, self.LONGEST)
            self.mean.lerp_(safe_G.mean(), self.pace)
            self.deviation.lerp_(safe_G.std(), self.pace)

    def forward(self, cosine_G: Tensor, norms_G: Tensor) -> Tensor:
        """The cosine of the true class with its margin."""
        longer_G = norms_G.detach().clamp(self.EPSILON, self.LONGEST) - self.mean
        place_G = (self.concentration * longer_G / (self.deviation + self.EPSILON)).clamp(-1, 1)
        angle_G = torch.acos(cosine_G.clamp(self.EPSILON - 1, 1 - self.EPSILON)) - self.margin * place_G
        angle_G = angle_G.clamp(self.EPSILON, math.pi - self.EPSILON)
        return torch.cos(angle_G) - self.margin * (1 + place_G)
