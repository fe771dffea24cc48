"""All codes that somebody has, as a prefix tree of plain tables.

Shapes: N identities, L code length, V values of a token, P nodes of a level, B images.
"""

from functools import cached_property
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gif_core.tokenization import Codes, CodeShape, pack_codes

NOBODY: Final = -1
"""The child of a node that no code goes on to."""
_MOST_NUMBERS: Final = 2**22
"""Sums over nodes that are held at a time."""
Integers = NDArray[np.int64]


class CodeTree:
    """For each token a table of children: a row for each prefix that exists, a column for each value.

    An entry is the row of the longer prefix in the next table, and in the last table the identity. With v = m^(1/l)
    the tables have few empty places, so all together take about 4 bytes for each identity.
    """

    def __init__(self, codes_NL: Codes, shape: CodeShape, device: torch.device | None = None) -> None:
        """Identity i has code i."""
        self.codes_NL, self.shape = codes_NL, shape
        self.children = [torch.from_numpy(table_PV).to(device) for table_PV in number_children(codes_NL, shape)]

    @cached_property
    def taken_VP(self) -> Tensor:  # noqa: N802
        """1 where a value of the last token ends somebody's code, else 0; made when it is first needed."""
        return (self.children[-1] != NOBODY).double().T.contiguous()

    def total_log_prob(self, log_probs_LBV: Tensor) -> Tensor:
        """The logarithm of Σ Π_j p_j(c_j) over all codes that exist, for each image.

        Unlike a search this takes time in proportion to their number: one multiplication for each code.
        """
        rows, images = max(1, _MOST_NUMBERS // len(self.children[-1])), log_probs_LBV.shape[1]
        parts = [self._total(log_probs_LBV[:, start : start + rows]) for start in range(0, images, rows)]
        return torch.cat(parts)

    def _total(self, log_probs_LBV: Tensor) -> Tensor:
        """From the leaves up, in 64 bits; each token's largest chance counts as 1 on the way, so nothing vanishes."""
        peak_LB = log_probs_LBV.amax(dim=2)
        probabilities_LBV = (log_probs_LBV - peak_LB[:, :, None]).double().exp()
        below_BP = probabilities_LBV[-1] @ self.taken_VP
        for children_PV, probabilities_BV in zip(self.children[-2::-1], reversed(probabilities_LBV[:-1]), strict=True):
            below_BP = torch.einsum("bpv,bv->bp", _by_parent(below_BP, children_PV), probabilities_BV)
        return below_BP[:, 0].log() + peak_LB.double().sum(dim=0)


def _by_parent(below_BP: Tensor, children_PV: Tensor) -> Tensor:
    """The sums below every place of a table [B, P, V]; those of a full one, as most are, lie in order already."""
    if below_BP.shape[1] == children_PV.numel():
        return below_BP.reshape(-1, *children_PV.shape)
    return below_BP[:, children_PV.clamp(min=0)] * (children_PV != NOBODY)


def number_children(codes_NL: Codes, shape: CodeShape) -> list[NDArray[np.int32]]:
    """The tables of a tree, from the root's on."""
    if not len(codes_NL):
        raise ValueError("there are no codes to make a tree of")
    packed_N = pack_codes(codes_NL, shape)
    order_N = np.argsort(packed_N, kind="stable")
    packed_N = packed_N[order_N]
    tables, parents_P = [], np.zeros(1, np.int64)
    for level in range(1, shape.length + 1):
        prefix_N = packed_N // shape.capacity(level)
        prefix_P = prefix_N[np.flatnonzero(np.diff(prefix_N, prepend=-1))]
        child_P = np.arange(len(prefix_P)) if level < shape.length else _owners(order_N, prefix_P)
        table_PV = np.full((len(parents_P), shape.vocab_size), NOBODY, np.int32)
        table_PV[np.searchsorted(parents_P, prefix_P // shape.vocab_size), prefix_P % shape.vocab_size] = child_P
        tables.append(table_PV)
        parents_P = prefix_P
    return tables


def _owners(order_N: Integers, codes_P: Integers) -> Integers:
    if len(order_N) != len(codes_P):
        raise ValueError(f"{len(order_N):,} identities have only {len(codes_P):,} different codes")
    return order_N
