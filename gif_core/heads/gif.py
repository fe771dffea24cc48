"""The paper's head: it learns identity codes (Eq. 7) and aligns features with code vectors (Eq. 8)."""

# Shapes: N identities, B images in a batch, D dimensions, L code length, V vocab size, K identities drawn in a step.

from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from gif_core.heads.base import Head, HeadOutput
from gif_core.heads.token_heads import TokenHeads
from schemas.training import TokenWeights, TrainingConfig

NEGATIVES: Final = 507
"""Second part of the seed of the negatives; no other random stream uses it."""


class GifHead(TokenHeads, Head):
    """L = code_weight · L_C + gamma · L_AR (Eq. 10).

    With `negatives=0`, L_AR is Eq. 8. Otherwise it is the margin softmax of z·h_y against the code vectors of
    `negatives` other identities, drawn in every step: CosFace with fixed centres, at a cost that does not depend on N.
    All processes draw the same identities, so that their number does not change the loss. With `code_map` above 0 a
    learned map shared by all identities moves the code vectors (`shared_map`). The paper's head is `negatives=0`,
    `margin=0`, `hidden_layers=2`, `code_weight=1` and `gamma=1`.
    """

    def __init__(
        self,
        codes_NL: NDArray[np.integer[Any]],
        code_vectors_ND: NDArray[np.floating[Any]],
        config: TrainingConfig,
        *,
        num_values: int,
        seed: int = 0,
    ) -> None:
        """Codes and code vectors may be mapped from files: only the rows in use are read."""
        if len(codes_NL) != len(code_vectors_ND):
            raise ValueError(f"{len(codes_NL)} codes do not fit {len(code_vectors_ND)} code vectors")
        length, dim = codes_NL.shape[1], code_vectors_ND.shape[1]
        super().__init__(
            length,
            num_values,
            dim,
            scale=config.scale_of_head,
            hidden_layers=config.hidden_layers,
            map_width=config.code_map if config.negatives else 0,  # without negatives it would map all to one point
        )
        self.codes_NL, self.code_vectors_ND, self.config = codes_NL, code_vectors_ND, config
        self.seed, self.drawn_K = seed, np.empty(0, dtype=np.int64)
        self.weight_of_token_L = weigh_tokens(config.token_weights, length)

    def begin_step(self, labels_B: Tensor, step: int) -> None:
        """Draw the negatives of the step."""
        self.drawn_K = draw_identities(len(self.codes_NL), self.config.negatives, seed=self.seed, step=step)

    def forward(self, features_BD: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss and its parts, in fp32 even under autocast."""
        with torch.autocast(device_type=features_BD.device.type, enabled=False):
            z_BD = F.normalize(features_BD.float(), dim=1)
            cosines_LBV = self.token_cosines(z_BD)
            codes_LB = _gather(self.codes_NL, labels_B.numpy(), np.int64, z_BD.device).T
            alignment_B = (z_BD * self.code_vectors(labels_B.numpy(), z_BD.device)).sum(dim=1)
            loss_codes = self._code_loss(cosines_LBV, codes_LB)
            loss_alignment = self._alignment_loss(z_BD, alignment_B, labels_B)
        metrics = {
            "loss_codes": loss_codes.detach(),
            "loss_alignment": loss_alignment.detach(),
            "alignment": alignment_B.detach().mean(),
        }
        loss = self.config.code_weight * loss_codes + self.config.gamma * loss_alignment
        return HeadOutput(loss, metrics | _accuracies(cosines_LBV.detach(), codes_LB))

    def code_vectors(self, identities_K: NDArray[np.int64], device: torch.device) -> Tensor:
        """The code vectors of these identities, after the shared map if there is one."""
        return self.place(_gather(self.code_vectors_ND, identities_K, np.float32, device))

    def _code_loss(self, cosines_LBV: Tensor, codes_LB: Tensor) -> Tensor:
        own_LBV = F.one_hot(codes_LB, cosines_LBV.shape[2])
        logits_LBV = self.scale * (cosines_LBV - self.config.margin_of_head * own_LBV)
        return code_loss(logits_LBV, codes_LB, self.weight_of_token_L.to(codes_LB.device))

    def _alignment_loss(self, z_BD: Tensor, alignment_B: Tensor, labels_B: Tensor) -> Tensor:
        if not self.config.negatives:
            return alignment_loss(alignment_B)
        if not len(self.drawn_K):
            raise ValueError("call begin_step before forward: it draws the negatives of the step")
        others_KD = self.code_vectors(self.drawn_K, z_BD.device)
        is_own_BK = _to_device(torch.from_numpy(labels_B.numpy()[:, None] == self.drawn_K), z_BD.device)
        others_BK = (z_BD @ others_KD.T).masked_fill(is_own_BK, -torch.inf)
        scale, margin = self.config.alignment_scale, self.config.alignment_margin
        return contrastive_loss(alignment_B, others_BK, scale=scale, margin=margin)


def code_loss(logits_LBV: Tensor, codes_LB: Tensor, weight_L: Tensor) -> Tensor:
    """L_C of Eq. 7: Σ_j λ_j times the cross entropy of token j, batch mean."""
    loss_LB = F.cross_entropy(logits_LBV.flatten(0, 1), codes_LB.flatten(), reduction="none").view_as(codes_LB)
    return weight_L @ loss_LB.mean(dim=1)


def alignment_loss(alignment_B: Tensor) -> Tensor:
    """L_AR of Eq. 8: ½ (z·h_y - 1)², batch mean."""
    return 0.5 * (alignment_B - 1).square().mean()


def contrastive_loss(alignment_B: Tensor, others_BK: Tensor, *, scale: float, margin: float) -> Tensor:
    """-log softmax of s·(z·h_y - margin) against s·z·h_k of the negatives k, batch mean; -inf excludes a negative."""
    logits_BK = scale * torch.cat([alignment_B[:, None] - margin, others_BK], dim=1)
    return F.cross_entropy(logits_BK, torch.zeros(len(logits_BK), dtype=torch.long, device=logits_BK.device))


def weigh_tokens(pattern: TokenWeights, length: int) -> Tensor:
    """λ_1 to λ_l of Eq. 7, with sum 1; `gaussian` has its mean at the middle token and a standard deviation of l/4."""
    place_L = torch.arange(1, length + 1, dtype=torch.float32)
    match pattern:
        case "uniform":
            weight_L = torch.ones(length)
        case "increasing":
            weight_L = place_L
        case "decreasing":
            weight_L = place_L.flip(0)
        case "gaussian":
            weight_L = torch.exp(-0.5 * ((place_L - (length + 1) / 2) / (length / 4)).square())
    return weight_L / weight_L.sum()


def draw_identities(num_identities: int, count: int, *, seed: int, step: int) -> NDArray[np.int64]:
    """`count` distinct identities, or all if there are fewer; a function of seed and step."""
    if count >= num_identities:
        return np.arange(num_identities)
    rng = np.random.default_rng(np.random.SeedSequence([seed, NEGATIVES, step]))
    return np.sort(rng.choice(num_identities, count, replace=False, shuffle=False))


def _gather(rows: NDArray[Any], labels: NDArray[np.int64], dtype: type, device: torch.device) -> Tensor:
    """The rows of these identities, copied to the device without waiting for it."""
    return _to_device(torch.from_numpy(np.asarray(rows[labels], dtype=dtype)), device)


def _to_device(tensor: Tensor, device: torch.device) -> Tensor:
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def _accuracies(cosines_LBV: Tensor, codes_LB: Tensor) -> dict[str, Tensor]:
    """Share of images with the right value of token j, and with the whole code right."""
    right_LB = cosines_LBV.argmax(dim=2) == codes_LB
    tokens = {f"token_accuracy/{j}": row_B.float().mean() for j, row_B in enumerate(right_LB, start=1)}
    return tokens | {"code_accuracy": right_LB.all(dim=0).float().mean()}
