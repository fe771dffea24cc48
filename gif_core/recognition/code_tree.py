"""All codes in use as a prefix tree of plain tables."""

# Shapes: N identities, L code length, V values of a token, P nodes of a level, B images.

from functools import cached_property
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gif_core.tokenization import Codes, CodeShape, pack_codes

NO_IDENTITY: Final = -1
"""Entry of a tree table that belongs to no code."""
_MOST_NUMBERS: Final = 2**22
"""Most sums over nodes in memory at a time."""
Integers = NDArray[np.int64]


class CodeTree:
    """For each token a table of children: a row for each prefix in use, a column for each value.

    An entry is the row of the longer prefix in the next table, and in the last table the identity. With v = m^(1/l)
    the tables have few empty entries, so together they take about 4 bytes per identity.
    """

    def __init__(self, codes_NL: Codes, shape: CodeShape, device: torch.device | None = None) -> None:
        """Build the tables; row i of `codes_NL` is the code of identity i."""
        self.codes_NL, self.shape = codes_NL, shape
        self.children = [torch.from_numpy(table_PV).to(device) for table_PV in number_children(codes_NL, shape)]

    @cached_property
    def taken_VP(self) -> Tensor:  # noqa: N802
        """1 where a value of the last token completes a code in use, else 0."""
        return (self.children[-1] != NO_IDENTITY).double().T.contiguous()

    def total_log_prob(self, log_probs_LBV: Tensor) -> Tensor:
        """The logarithm of Σ Π_j p_j(c_j) over all codes in use, for each image.

        Unlike a beam search this takes time linear in their number: one multiplication per code.
        """
        rows, images = max(1, _MOST_NUMBERS // len(self.children[-1])), log_probs_LBV.shape[1]
        parts = [self._total(log_probs_LBV[:, start : start + rows]) for start in range(0, images, rows)]
        return torch.cat(parts)

    def _total(self, log_probs_LBV: Tensor) -> Tensor:
        """From the leaves up, in float64; probabilities are divided by each token's largest against underflow."""
        peak_LB = log_probs_LBV.amax(dim=2)
        probabilities_LBV = (log_probs_LBV - peak_LB[:, :, None]).double().exp()
        below_BP = probabilities_LBV[-1] @ self.taken_VP
        for children_PV, probabilities_BV in zip(self.children[-2::-1], reversed(probabilities_LBV[:-1]), strict=True):
            below_BP = torch.einsum("bpv,bv->bp", _by_parent(below_BP, children_PV), probabilities_BV)
        return below_BP[:, 0].log() + peak_LB.double().sum(dim=0)


def _by_parent(below_BP: Tensor, children_PV: Tensor) -> Tensor:
    """The sums below every entry of a table [B, P, V]; a full table, as most are, has them in order already."""
    if below_BP.shape[1] == children_PV.numel():
        return below_BP.reshape(-1, *children_PV.shape)
    return below_BP[:, children_PV.clamp(min=0)] * (children_PV != NO_IDENTITY)


def number_children(codes_NL: Codes, shape: CodeShape) -> list[NDArray[np.int32]]:
    """The tables of a tree, starting at the root."""
    if not len(codes_NL):
        raise ValueError("cannot build a code tree from no codes")
    packed_N = pack_codes(codes_NL, shape)
    order_N = np.argsort(packed_N, kind="stable")
    packed_N = packed_N[order_N]
    tables, parents_P = [], np.zeros(1, np.int64)
    for level in range(1, shape.length + 1):
        prefix_N = packed_N // shape.capacity(level)
        prefix_P = prefix_N[np.flatnonzero(np.diff(prefix_N, prepend=-1))]
        child_P = np.arange(len(prefix_P)) if level < shape.length else _owners(order_N, prefix_P)
        table_PV = np.full((len(parents_P), shape.vocab_size), NO_IDENTITY, np.int32)
        table_PV[np.searchsorted(parents_P, prefix_P // shape.vocab_size), prefix_P % shape.vocab_size] = child_P
        tables.append(table_PV)
        parents_P = prefix_P
    return tables


def _owners(order_N: Integers, codes_P: Integers) -> Integers:
    if len(order_N) != len(codes_P):
        raise ValueError(f"{len(order_N):,} identities have only {len(codes_P):,} different codes")
    return order_N
