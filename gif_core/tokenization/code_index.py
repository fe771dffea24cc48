"""From identities to codes and back, for millions at a time."""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from gif_core.tokenization.codes import Codes, CodeShape, Integers, pack_codes

UNKNOWN = -1
"""The identity of a code that nobody has."""
ROOM = 8
"""With at most so many possible codes for each one taken, a plain array finds the owner; else a search does."""


class CodeIndex:
    """The table of codes in both directions: identity i has code i."""

    def __init__(self, codes_NL: Codes, shape: CodeShape) -> None:
        self.codes_NL, self.shape = codes_NL, shape
        packed_N = pack_codes(codes_NL, shape)
        self._find: Callable[[Integers], Integers]
        if shape.capacity(0) <= ROOM * len(codes_NL):
            owner_C = np.full(shape.capacity(0), UNKNOWN, dtype=np.int64)
            owner_C[packed_N] = np.arange(len(codes_NL))
            self._find = owner_C.__getitem__
        else:
            order_N = np.argsort(packed_N, kind="stable")
            self._find = partial(_search, packed_N[order_N], order_N)

    def codes_of(self, identities_M: npt.NDArray[np.integer]) -> Codes:
        """The codes of these identities."""
        outside_M = (identities_M < 0) | (identities_M >= len(self.codes_NL))
        if outside_M.any():
            wrong = int(identities_M[outside_M][0])
            raise ValueError(f"there is no identity {wrong}: they go from 0 to {len(self.codes_NL) - 1}")
        codes_ML: Codes = self.codes_NL[identities_M]
        return codes_ML

    def identities_of(self, codes_ML: npt.NDArray[np.integer]) -> Integers:
        """The identities that have these codes, -1 where nobody has one."""
        if codes_ML.ndim != 2 or codes_ML.shape[1] != self.shape.length:
            raise ValueError(f"a code has {self.shape.length} tokens; these are of shape {codes_ML.shape}")
        # A token outside the range would be packed into the number of some other code.
        valid_M = ((codes_ML >= 0) & (codes_ML < self.shape.vocab_size)).all(axis=1)
        packed_M = np.where(valid_M, pack_codes(codes_ML, self.shape), 0)
        return np.where(valid_M, self._find(packed_M), UNKNOWN)


def _search(sorted_N: Integers, identity_N: Integers, packed_M: Integers) -> Integers:
    """The identity of each number, found by bisection."""
    place_M = np.minimum(np.searchsorted(sorted_N, packed_M), len(sorted_N) - 1)
    return np.where(sorted_N[place_M] == packed_M, identity_N[place_M], UNKNOWN)
