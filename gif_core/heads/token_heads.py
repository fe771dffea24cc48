"""Token heads: the classifiers that predict a code from a feature (Eq. 7). A trained model keeps only these."""

# Shapes: B images in a batch, D dimensions, L code length, V vocab size, K code vectors, W width of the shared map.

import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gif_core.heads.shared_map import apply_shared_map, new_shared_map

SHORTEST: Final = 1e-12
"""Lower bound of the norms that divide."""


class TokenHeads(nn.Module):
    """H_φj and U^j of Eq. 7 for every token j.

    H_φj is `hidden_layers` layers of Linear and ReLU from d to d on the normalised feature; all l of them run as one
    batched product. Biases start at zero and the rows of U^j at about unit length: the entries of a normalised feature
    are about 1/√d, and PyTorch's default biases would dominate them.

    With `map_width` above 0 the head also holds the shared map of code vectors (`shared_map`).
    """

    def __init__(
        self, length: int, num_values: int, dim: int, *, scale: float, hidden_layers: int = 2, map_width: int = 0
    ) -> None:
        """Heads for codes of `length` tokens with a vocab size of `num_values`."""
        super().__init__()
        self.scale, self.map_width = scale, map_width
        self.hidden_LDD = nn.ParameterList(_he_weights(length, dim) for _ in range(hidden_layers))
        self.bias_LD = nn.ParameterList(torch.zeros(length, dim) for _ in range(hidden_layers))
        self.classifiers_LVD = nn.Parameter(torch.randn(length, num_values, dim) / math.sqrt(dim))
        if map_width:
            self.map_in_DW, self.map_out_WD = new_shared_map(dim, map_width)

    def place(self, code_vectors_KD: Tensor) -> Tensor:
        """Apply the shared map to code vectors; without a map they are returned unchanged."""
        if not self.map_width:
            return code_vectors_KD
        return apply_shared_map(code_vectors_KD, self.map_in_DW, self.map_out_WD)

    def token_cosines(self, z_BD: Tensor) -> Tensor:
        """cos(u, H_φj(z)) of Eq. 7 for every token j and every value u; the norm divides products, which are fewer."""
        x_LBD = z_BD.expand(len(self.classifiers_LVD), -1, -1)
        for weight_LDD, bias_LD in zip(self.hidden_LDD, self.bias_LD, strict=True):
            x_LBD = F.relu(torch.baddbmm(bias_LD[:, None], x_LBD, weight_LDD))
        length_LB1 = torch.linalg.vector_norm(x_LBD, dim=2, keepdim=True).clamp_min(SHORTEST)
        cosines_LBV: Tensor = torch.bmm(x_LBD, F.normalize(self.classifiers_LVD, dim=2).mT) / length_LB1
        return cosines_LBV

    def token_logits(self, z_BD: Tensor) -> Tensor:
        """The logits of Eq. 7 without a margin, s · cos(u, H_φj(z)): their softmax is the probability of a value."""
        return self.scale * self.token_cosines(z_BD)


def _he_weights(length: int, dim: int) -> Tensor:
    """Weights [L, D, D] of l layers with He initialisation."""
    return torch.randn(length, dim, dim) * math.sqrt(2 / dim)
