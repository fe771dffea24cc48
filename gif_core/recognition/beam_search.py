"""Beam search through the code tree: the most probable codes in use, for all images at once."""

# Shapes: B images, D dimensions, N identities, L code length, V values of a token, P nodes of a level, K codes kept
# for an image, M prefixes to choose from.

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from gif_core.heads import TokenHeads
from gif_core.recognition.code_tree import NO_IDENTITY, CodeTree

_MOST_NUMBERS: Final = 2**24
"""Most prefix scores in memory at a time."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The most probable codes of each image, best first."""

    identities_BK: Tensor
    """Identities that have these codes; NO_IDENTITY where there are fewer than K."""
    log_probs_BK: Tensor
    """log Π_j p_j(c_j), the product of the tokens' probabilities; -inf where there are fewer than K."""
    bound_B: Tensor
    """Upper bound on the log probability of dropped codes: a first code at or above it is the best of all."""


def token_log_probs(heads: TokenHeads, z_BD: Tensor) -> Tensor:
    """The logarithm of p_j(value) of every token j [L, B, V], with p_j the softmax of Eq. 7 without a margin."""
    return F.log_softmax(heads.token_logits(z_BD), dim=2)


def search_codes(tree: CodeTree, log_probs_LBV: Tensor, beam: int) -> Decoded:
    """The `beam` most probable codes that a beam of this width finds; exact if it is as wide as the tree."""
    if beam < 1:
        raise ValueError(f"beam must be at least 1, not {beam}")
    parts = [_search(tree, part_LBV, beam) for part_LBV in _split(tree, log_probs_LBV, beam)]
    columns = ([getattr(part, name) for part in parts] for name in Decoded.__dataclass_fields__)
    return Decoded(*(torch.cat(column) for column in columns))


def _split(tree: CodeTree, log_probs_LBV: Tensor, beam: int) -> Iterator[Tensor]:
    """Chunks of images that keep the scores within `_MOST_NUMBERS`."""
    rows = max(1, _MOST_NUMBERS // (min(beam, len(tree.codes_NL)) * tree.shape.vocab_size))
    for start in range(0, log_probs_LBV.shape[1], rows):
        yield log_probs_LBV[:, start : start + rows]


def _search(tree: CodeTree, log_probs_LBV: Tensor, beam: int) -> Decoded:
    """Token by token, keep the most probable of the prefixes in use."""
    best_LB = log_probs_LBV.amax(dim=2)
    num_images, device = best_LB.shape[1], best_LB.device
    score_BK = torch.zeros(num_images, 1, device=device)
    node_BK = torch.zeros(num_images, 1, dtype=torch.long, device=device)
    bound_B = torch.full((num_images,), -torch.inf, device=device)
    for level, children_PV in enumerate(tree.children):
        child_BM = children_PV[node_BK].flatten(1)
        score_BM = (score_BK[:, :, None] + log_probs_LBV[level][:, None, :]).flatten(1)
        score_BM = score_BM.masked_fill(child_BM == NO_IDENTITY, -torch.inf)
        kept = min(beam, score_BM.shape[1])
        top = score_BM.topk(min(kept + 1, score_BM.shape[1]), dim=1)
        if kept < score_BM.shape[1]:
            bound_B = torch.maximum(bound_B, top.values[:, kept] + best_LB[level + 1 :].sum(dim=0))
        score_BK = top.values[:, :kept]
        node_BK = child_BM.gather(1, top.indices[:, :kept]).long()
    return Decoded(node_BK.masked_fill(score_BK == -torch.inf, NO_IDENTITY), score_BK, bound_B)
