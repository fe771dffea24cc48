"""The paper's head: it learns identity codes (Eq. 7) and aligns features with code vectors (Eq. 8)."""

# Shapes: N identities, B images of this process, G images of all processes, D dimensions, L code length, V vocab size,
# K identities drawn in a step, S identities in use in a step: those of the batch and the drawn ones.

from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from gif_core.heads.base import Head, HeadOutput
from gif_core.heads.code_vectors import FrozenVectors, LivingVectors
from gif_core.heads.token_heads import TokenHeads
from gif_core.runtime import gather_on_hosts, to_device
from schemas.training import TokenWeights, TrainingConfig

NEGATIVES: Final = 507
"""Second part of the seed of the negatives; no other random stream uses it."""


class GifHead(TokenHeads, Head):
    """L = code_weight · L_C + gamma · L_AR (Eq. 10).

    With `negatives=0`, L_AR is Eq. 8. Otherwise it is the margin softmax of z·h_y against the code vectors of all
    identities in use: those of the batch of all processes, and `negatives` others that are drawn in every step. It is
    CosFace on few of the rows, at a cost that does not depend on N. All processes use the same rows, so that their
    number does not change the loss. `mapped` and `living` code vectors go through a learned map that all identities
    share (`shared_map`); the rows of `living` ones learn too (`code_vectors`), and need no map where every step uses
    all of them. The paper's head is `negatives=0`, `margin=0`, `hidden_layers=2`, `code_weight=1` and `gamma=1`.
    """

    weight_of_token_L: Tensor

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
            map_width=config.map_width if config.maps_code_vectors(len(codes_NL)) else 0,
        )
        living = config.code_vectors == "living"
        self.vectors = LivingVectors(code_vectors_ND, config.row_rate) if living else FrozenVectors(code_vectors_ND)
        self.codes_NL, self.config, self.seed = codes_NL, config, seed
        self.row_range = (0, len(codes_NL)) if living else (0, 0)
        self._prepared: dict[int, NDArray[np.int64]] = {}
        self.register_buffer("weight_of_token_L", weigh_tokens(config.token_weights, length), persistent=False)

    def row_tensors(self) -> tuple[str, ...]:
        """The code vectors that learn, and the optimizer's state of each."""
        return tuple(f"vectors.{name}" for name in self.vectors.row_tensors())

    def row_optimizer(self) -> Optimizer | None:
        """The optimizer of the code vectors that learn."""
        return self.vectors.optimizer if isinstance(self.vectors, LivingVectors) else None

    def hold_rows(self, device: torch.device, memory: float, precision: torch.dtype = torch.float32) -> None:
        """Keep all code vectors on the device if they fit."""
        self.vectors.hold(device, memory, precision)

    def prepare_step(self, labels_B: Tensor, step: int) -> None:
        """Begin to read the rows of a step, if they are not on the device."""
        if self.config.negatives and self.vectors.ahead:
            self._prepared[step] = self._choose_rows(labels_B, step)
            self.vectors.ahead.prepare(self._prepared[step])

    def begin_step(self, labels_B: Tensor, step: int) -> None:
        """Draw the negatives of the step, and read the rows in use."""
        if self.config.negatives:
            prepared_S = self._prepared.pop(step, None)
            used_S = self._choose_rows(labels_B, step) if prepared_S is None else prepared_S
            self.vectors.select(used_S, self.device)

    def _choose_rows(self, labels_B: Tensor, step: int) -> NDArray[np.int64]:
        """The identities of the batch of all processes and the drawn ones, which ascend."""
        drawn_K = draw_identities(len(self.codes_NL), self.config.negatives, seed=self.seed, step=step)
        return np.union1d(gather_on_hosts(labels_B).numpy(), drawn_K)

    def end_step(self) -> None:
        """Write the rows that learn back."""
        self.vectors.store()

    @torch.no_grad()
    def rows_of(self, labels_B: Tensor) -> Tensor:
        """The code vectors of these identities, after the shared map if there is one."""
        if not self.config.negatives:
            return self.vectors.read(labels_B, self.device)
        return self.place(self.vectors.rows()[self.vectors.find(labels_B)])

    @property
    def device(self) -> torch.device:
        """Where the head computes."""
        return self.classifiers_LVD.device

    def forward(self, features_BD: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss and its parts, in fp32 even under autocast."""
        with torch.autocast(device_type=features_BD.device.type, enabled=False):
            z_BD = F.normalize(features_BD.float(), dim=1)
            cosines_LBV = self.token_cosines(share_gradient(z_BD, self.config.code_gradient))
            codes_LB = _gather(self.codes_NL, labels_B.numpy(), np.int64, z_BD.device).T
            loss_codes = self._code_loss(cosines_LBV, codes_LB)
            loss_alignment, alignment_B = self._alignment_loss(z_BD, labels_B)
        metrics = {
            "loss_codes": loss_codes.detach(),
            "loss_alignment": loss_alignment.detach(),
            "alignment": alignment_B.detach().mean(),
        }
        loss = self.config.code_weight * loss_codes + self.config.gamma * loss_alignment
        return HeadOutput(loss, metrics | _accuracies(cosines_LBV.detach(), codes_LB))

    def _code_loss(self, cosines_LBV: Tensor, codes_LB: Tensor) -> Tensor:
        own_LBV = F.one_hot(codes_LB, cosines_LBV.shape[2])
        logits_LBV = self.scale * (cosines_LBV - self.config.margin_of_head * own_LBV)
        return code_loss(logits_LBV, codes_LB, self.weight_of_token_L)

    def _alignment_loss(self, z_BD: Tensor, labels_B: Tensor) -> tuple[Tensor, Tensor]:
        """L_AR, and z·h of every image."""
        if not self.config.negatives:
            own_BD = self.vectors.read(labels_B, z_BD.device)
            alignment_B = (z_BD * own_BD).sum(dim=1)
            return alignment_loss(alignment_B), alignment_B
        place_B = self.vectors.find(labels_B)
        cosines_BS = z_BD @ self.place(self.vectors.rows()).T
        alignment_B = cosines_BS.gather(1, place_B[:, None])[:, 0]
        scale, margin = self.config.alignment_scale, self.config.alignment_margin
        return margin_loss(cosines_BS, place_B, scale=scale, margin=margin), alignment_B


def share_gradient(z_BD: Tensor, share: float) -> Tensor:
    """The same features, of whose gradient this share goes on."""
    return z_BD if share == 1 else torch.lerp(z_BD.detach(), z_BD, share)


def code_loss(logits_LBV: Tensor, codes_LB: Tensor, weight_L: Tensor) -> Tensor:
    """L_C of Eq. 7: Σ_j λ_j times the cross entropy of token j, batch mean."""
    loss_LB = F.cross_entropy(logits_LBV.flatten(0, 1), codes_LB.flatten(), reduction="none").view_as(codes_LB)
    return weight_L @ loss_LB.mean(dim=1)


def alignment_loss(alignment_B: Tensor) -> Tensor:
    """L_AR of Eq. 8: ½ (z·h_y - 1)², batch mean."""
    return 0.5 * (alignment_B - 1).square().mean()


def margin_loss(cosines_BS: Tensor, place_B: Tensor, *, scale: float, margin: float) -> Tensor:
    """-log softmax of s·(z·h_y - margin) against s·z·h of all others in use, batch mean."""
    margin_B1 = torch.full_like(cosines_BS[:, :1], -margin)
    return F.cross_entropy(scale * cosines_BS.scatter_add(1, place_B[:, None], margin_B1), place_B)


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
    return to_device(torch.from_numpy(np.asarray(rows[labels], dtype=dtype)), device)


def _accuracies(cosines_LBV: Tensor, codes_LB: Tensor) -> dict[str, Tensor]:
    """Share of images with the right value of token j, and with the whole code right."""
    right_LB = cosines_LBV.argmax(dim=2) == codes_LB
    tokens = {f"token_accuracy/{j}": row_B.float().mean() for j, row_B in enumerate(right_LB, start=1)}
    return tokens | {"code_accuracy": right_LB.all(dim=0).float().mean()}
