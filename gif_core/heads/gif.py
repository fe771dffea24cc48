"""The paper's head: it learns identity codes (Eq. 7) and pulls features to the code vectors (Eq. 8)."""

# Shapes: N identities, B images in a batch, D dimensions, L tokens of a code, V values of a token.

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from gif_core.heads.base import Head, HeadOutput


class GifHead(Head):
    """L = L_C + gamma · L_AR (Eq. 10).

    H_φj is Linear, ReLU, Linear, ReLU from d to d on the normalised feature; all l are stacked and run as one
    batched product. Biases start at zero and the rows of U^j at about unit length: a normalised feature
    has entries of 1/√d, which PyTorch's default biases would drown.
    """

    def __init__(
        self,
        codes_NL: NDArray[np.integer[Any]],
        code_vectors_ND: NDArray[np.floating[Any]],
        *,
        scale: float,
        gamma: float,
    ) -> None:
        """Codes and code vectors stay where they are, in memory or mapped from a file: only rows in use are read."""
        super().__init__()
        if len(codes_NL) != len(code_vectors_ND):
            raise ValueError(f"{len(codes_NL)} codes do not fit {len(code_vectors_ND)} code vectors")
        length, dim = codes_NL.shape[1], code_vectors_ND.shape[1]
        self.scale, self.gamma = scale, gamma
        self.codes_NL, self.code_vectors_ND = codes_NL, code_vectors_ND
        self.hidden1_LDD, self.bias1_LD = _stacked_linear(length, dim)
        self.hidden2_LDD, self.bias2_LD = _stacked_linear(length, dim)
        self.classifiers_LVD = nn.Parameter(torch.randn(length, int(codes_NL.max()) + 1, dim) / math.sqrt(dim))

    def forward(self, features_BD: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss and its parts, in fp32 also under autocast."""
        with torch.autocast(device_type=features_BD.device.type, enabled=False):
            z_BD = F.normalize(features_BD.float(), dim=1)
            logits_LBV = self.token_logits(z_BD)
            codes_LB = _gather(self.codes_NL, labels_B, np.int64, z_BD.device).T
            alignment_B = (z_BD * _gather(self.code_vectors_ND, labels_B, np.float32, z_BD.device)).sum(dim=1)
            loss_codes = code_loss(logits_LBV, codes_LB)
            loss_alignment = alignment_loss(alignment_B)
        metrics = {
            "loss_codes": loss_codes.detach(),
            "loss_alignment": loss_alignment.detach(),
            "alignment": alignment_B.detach().mean(),
        }
        loss = loss_codes + self.gamma * loss_alignment
        return HeadOutput(loss, metrics | _accuracies(logits_LBV.detach(), codes_LB))

    def token_logits(self, z_BD: Tensor) -> Tensor:
        """The exponents of Eq. 7, s · cos(u, H_φj(z)), for every token j and every value."""
        z_LBD = z_BD.expand(len(self.hidden1_LDD), -1, -1)
        hidden_LBD = F.relu(torch.baddbmm(self.bias1_LD[:, None], z_LBD, self.hidden1_LDD))
        hidden_LBD = F.relu(torch.baddbmm(self.bias2_LD[:, None], hidden_LBD, self.hidden2_LDD))
        rows_LVD = F.normalize(self.classifiers_LVD, dim=2)
        return self.scale * torch.bmm(F.normalize(hidden_LBD, dim=2), rows_LVD.mT)


def _gather(rows: NDArray[Any], labels_B: Tensor, dtype: type, device: torch.device) -> Tensor:
    """The rows of these identities, on their way to the device while the host goes on."""
    chosen = torch.from_numpy(np.asarray(rows[labels_B.numpy()], dtype=dtype))
    return (chosen.pin_memory() if device.type == "cuda" else chosen).to(device, non_blocking=True)


def code_loss(logits_LBV: Tensor, codes_LB: Tensor) -> Tensor:
    """L_C of Eq. 7: the cross entropy of each token, batch mean, weighted with λ_j = 1/l."""
    return F.cross_entropy(logits_LBV.flatten(0, 1), codes_LB.flatten())


def alignment_loss(alignment_B: Tensor) -> Tensor:
    """L_AR of Eq. 8: ½ (z·h_y - 1)², batch mean."""
    return 0.5 * (alignment_B - 1).square().mean()


def _stacked_linear(length: int, dim: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Weights [L, D_in, D_out] of l layers with He's initialisation, and zero biases."""
    weight_LDD = torch.randn(length, dim, dim) * math.sqrt(2 / dim)
    return nn.Parameter(weight_LDD), nn.Parameter(torch.zeros(length, dim))


def _accuracies(logits_LBV: Tensor, codes_LB: Tensor) -> dict[str, Tensor]:
    """Share of images with the right value of token j, and with the whole code right."""
    right_LB = logits_LBV.argmax(dim=2) == codes_LB
    tokens = {f"token_accuracy/{j}": row_B.float().mean() for j, row_B in enumerate(right_LB, start=1)}
    return tokens | {"code_accuracy": right_LB.all(dim=0).float().mean()}
