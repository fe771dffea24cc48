"""Look-up in both directions between identities and codes, for millions at a time."""

# Shapes: N identities of the table, M identities or codes to look up, L code length, C possible codes (v^l).

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from gif_core.tokenization.codes import Codes, CodeShape, Integers, pack_codes

UNKNOWN = -1
"""Returned for a code that belongs to no identity."""
ROOM = 8
"""With at most this many possible codes per identity the look-up is an array of all codes; else a binary search."""


class CodeIndex:
    """The code table in both directions; row i is the code of identity i."""

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
        """Return the codes of these identities."""
        outside_M = (identities_M < 0) | (identities_M >= len(self.codes_NL))
        if outside_M.any():
            wrong = int(identities_M[outside_M][0])
            raise ValueError(f"there is no identity {wrong}: identities are 0 to {len(self.codes_NL) - 1}")
        codes_ML: Codes = self.codes_NL[identities_M]
        return codes_ML

    def identities_of(self, codes_ML: npt.NDArray[np.integer]) -> Integers:
        """Return the identities with these codes, `UNKNOWN` where there is none."""
        if codes_ML.ndim != 2 or codes_ML.shape[1] != self.shape.length:
            raise ValueError(f"a code has {self.shape.length} tokens, got an array of shape {codes_ML.shape}")
        # A token outside [0, v - 1] would be packed into the number of another code.
        valid_M = ((codes_ML >= 0) & (codes_ML < self.shape.vocab_size)).all(axis=1)
        packed_M = np.where(valid_M, pack_codes(codes_ML, self.shape), 0)
        return np.where(valid_M, self._find(packed_M), UNKNOWN)


def _search(sorted_N: Integers, identity_N: Integers, packed_M: Integers) -> Integers:
    """Return the identity of each packed code, found by bisection."""
    place_M = np.minimum(np.searchsorted(sorted_N, packed_M), len(sorted_N) - 1)
    return np.where(sorted_N[place_M] == packed_M, identity_N[place_M], UNKNOWN)
