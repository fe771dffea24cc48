"""The part of the paper's head that reads a code from a feature: all that is needed of it after training."""

# Shapes: B images in a batch, D dimensions, L tokens of a code, V values of a token, K identities, W width of the map.

import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHORTEST: Final = 1e-12
"""A length that is divided by is no less."""


class TokenHeads(nn.Module):
    """H_φj and U^j of Eq. 7 for every token j.

    H_φj is `hidden_layers` times Linear, ReLU from d to d on the normalised feature; all l are stacked and run as one
    batched product. Biases start at zero and the rows of U^j at about unit length: a normalised feature
    has entries of 1/√d, which PyTorch's default biases would drown.

    With `map_width` there is a map of the code vectors beside them, h + relu(h·A)·B; it begins as the identity.
    """

    def __init__(
        self, length: int, num_values: int, dim: int, *, scale: float, hidden_layers: int = 2, map_width: int = 0
    ) -> None:
        """Heads for codes of `length` tokens of `num_values` values each."""
        super().__init__()
        self.scale, self.map_width = scale, map_width
        self.hidden_LDD = nn.ParameterList(_he_weights(length, dim) for _ in range(hidden_layers))
        self.bias_LD = nn.ParameterList(torch.zeros(length, dim) for _ in range(hidden_layers))
        self.classifiers_LVD = nn.Parameter(torch.randn(length, num_values, dim) / math.sqrt(dim))
        if map_width:
            self.map_in_DW = nn.Parameter(torch.randn(dim, map_width) * math.sqrt(2))
            self.map_out_WD = nn.Parameter(torch.zeros(map_width, dim))

    def place(self, frozen_KD: Tensor) -> Tensor:
        """Code vectors where the learned map puts them, or as they are when there is none."""
        if not self.map_width:
            return frozen_KD
        return F.normalize(frozen_KD + F.relu(frozen_KD @ self.map_in_DW) @ self.map_out_WD, dim=1)

    def token_cosines(self, z_BD: Tensor) -> Tensor:
        """cos(u, H_φj(z)) of Eq. 7, for every token j and every value; products are divided by the length, not rows."""
        x_LBD = z_BD.expand(len(self.classifiers_LVD), -1, -1)
        for weight_LDD, bias_LD in zip(self.hidden_LDD, self.bias_LD, strict=True):
            x_LBD = F.relu(torch.baddbmm(bias_LD[:, None], x_LBD, weight_LDD))
        length_LB1 = torch.linalg.vector_norm(x_LBD, dim=2, keepdim=True).clamp_min(SHORTEST)
        cosines_LBV: Tensor = torch.bmm(x_LBD, F.normalize(self.classifiers_LVD, dim=2).mT) / length_LB1
        return cosines_LBV

    def token_logits(self, z_BD: Tensor) -> Tensor:
        """The exponents of Eq. 7 without a margin, s · cos(u, H_φj(z)): their softmax is the probability of a value."""
        return self.scale * self.token_cosines(z_BD)


def _he_weights(length: int, dim: int) -> Tensor:
    """Weights [L, D_in, D_out] of l layers with He's initialisation."""
    return torch.randn(length, dim, dim) * math.sqrt(2 / dim)
