"""The learned map of code vectors, shared by all identities: h → normalize(h + relu(h·A)·B).

It moves the code vectors of identities that look alike to the network, at a cost that does not depend on their number.
Its parameters belong to the head that uses it (`token_heads`), under the names `map_in_DW` (A) and `map_out_WD` (B).
"""

# Shapes: D dimensions, W width of the map, K code vectors.

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def new_shared_map(dim: int, width: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Parameters A and B of a map that is the identity until it is trained: B is zero."""
    map_in_DW = nn.Parameter(torch.randn(dim, width) * math.sqrt(2))
    return map_in_DW, nn.Parameter(torch.zeros(width, dim))


def apply_shared_map(code_vectors_KD: Tensor, map_in_DW: Tensor, map_out_WD: Tensor) -> Tensor:
    """The mapped code vectors, of unit length."""
    return F.normalize(code_vectors_KD + F.relu(code_vectors_KD @ map_in_DW) @ map_out_WD, dim=1)
