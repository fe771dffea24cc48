"""Margins on the cosine of the true class (Eq. 1): ArcFace, CosFace, SphereFace, AdaFace, CurricularFace, MagFace."""

# Shapes: G images of the batch of all processes, M rows of this process.

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

    changes_negatives = False
    """Whether `change_negatives` does anything."""
    learns_norms = False
    """Whether gradients go through the norms of features."""

    def __init__(self, m1: float, m2: float, m3: float) -> None:
        super().__init__()
        if m1 < 1 or m2 < 0 or m3 < 0:
            raise ValueError(f"margins ({m1}, {m2}, {m3}): m1 must be at least 1, m2 and m3 at least 0")
        self.m1, self.m2, self.m3 = m1, m2, m3

    def observe(self, norms_G: Tensor) -> None:
        """Take the feature norms of a batch into account; these margins do not depend on them."""

    def change_negatives(self, cosines_GM: Tensor, target_G: Tensor, own_G: Tensor) -> Tensor:
        """Change the cosines to other classes in place and return the derivatives of the change.

        `target_G` are the cosines of the true classes with margin, `own_G` those without.
        """
        return torch.ones_like(cosines_GM)

    def penalty(self, norms_G: Tensor) -> Tensor | None:
        """A term of the loss that depends on the norms of features."""
        return None

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


class CurricularMargin(CombinedMargin):
    """CurricularFace: ArcFace's cos(θ + m), and c·(t + c) for the cosine c of each negative above it.

    t is a running mean of the cosines to the true classes: negatives that are hard now count little at the beginning
    and more towards the end.
    """

    changes_negatives = True
    progress: Tensor

    def __init__(self, margin: float, *, pace: float = 0.01) -> None:
        """`pace` is the weight of a batch in the running mean."""
        super().__init__(1.0, margin, 0.0)
        self.pace = pace
        self.register_buffer("progress", torch.tensor(0.0))

    @torch.no_grad()
    def change_negatives(self, cosines_GM: Tensor, target_G: Tensor, own_G: Tensor) -> Tensor:
        """Reweigh the hard negatives, with the mean of this batch already in t."""
        if self.training:
            self.progress.lerp_(own_G.mean().to(self.progress.dtype), self.pace)
        hard_GM = cosines_GM > target_G[:, None]
        slopes_GM = torch.where(hard_GM, self.progress + 2 * cosines_GM, 1.0)
        cosines_GM.copy_(torch.where(hard_GM, cosines_GM * (self.progress + cosines_GM), cosines_GM))
        return slopes_GM


class MagnitudeMargin(CombinedMargin):
    """MagFace: cos(θ + m(a)), whose margin grows with the feature's norm a, and a penalty that rewards long features.

    m(a) = m + 0.35·(a - 10)/100 with a clamped to [10, 110]; the penalty is λ·mean(a/110² + 1/a). Images at an angle
    above π/2 get no margin (the authors' easy margin).
    """

    SHORTEST: Final = 10.0
    LONGEST: Final = 110.0
    RISE: Final = 0.35
    learns_norms = True

    def __init__(self, margin: float, *, norm_weight: float) -> None:
        """`margin` is that of the shortest features; `norm_weight` is λ."""
        super().__init__(1.0, margin, 0.0)
        self.norm_weight = norm_weight

    def forward(self, cosine_G: Tensor, norms_G: Tensor) -> Tensor:
        """The cosine of the true class with its margin."""
        longer_G = norms_G.clamp(self.SHORTEST, self.LONGEST) - self.SHORTEST
        margin_G = self.m2 + self.RISE * longer_G / (self.LONGEST - self.SHORTEST)
        margined_G = torch.cos(torch.acos(cosine_G.clamp(-NEAR_ONE, NEAR_ONE)) + margin_G)
        return torch.where(cosine_G > 0, margined_G, cosine_G)

    def penalty(self, norms_G: Tensor) -> Tensor:
        """λ·g(a), batch mean."""
        norms_G = norms_G.clamp(self.SHORTEST, self.LONGEST)
        return self.norm_weight * (norms_G / self.LONGEST**2 + 1 / norms_G).mean()
