"""Sums of vectors by the node they belong to.

Shapes: N rows, K keys, D dimensions.
"""

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

Floats = npt.NDArray[np.floating]

CHUNK_NUMBERS = 2**24
"""Numbers that are copied at a time."""


def sum_rows(vectors_ND: Floats, key_N: npt.NDArray[np.integer], num_keys: int) -> Floats:
    """The sum of the rows that have each key, in one pass over the rows as they lie."""
    num_rows = len(vectors_ND)
    ones_N = np.ones(num_rows, dtype=np.float32)
    member_KN = csc_array((ones_N, key_N, np.arange(num_rows + 1)), shape=(num_keys, num_rows))
    sum_KD: Floats = member_KN @ vectors_ND
    return sum_KD


def chunks(num_rows: int, numbers_per_row: int) -> list[slice]:
    """Slices that cover all rows, each of about `CHUNK_NUMBERS` numbers."""
    step = max(1, CHUNK_NUMBERS // numbers_per_row)
    return [slice(start, start + step) for start in range(0, num_rows, step)]


def unit_rows(vectors_ND: Floats) -> Floats:
    """The directions of the rows; a row of zeros stays one."""
    norm_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    unit_ND: Floats = vectors_ND / np.maximum(norm_N1, np.finfo(np.float32).tiny)
    return unit_ND
