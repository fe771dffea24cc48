"""Sums of vectors by the node they belong to, without a copy of all vectors.

Shapes: N rows, K keys, D dimensions.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]

CHUNK_NUMBERS = 2**24
"""Numbers that are copied at a time."""


def sum_rows(vectors_ND: Floats, key_N: npt.NDArray[np.integer], num_keys: int) -> Floats:
    """The sum of the rows that have each key."""
    sum_KD: Floats = np.zeros((num_keys, vectors_ND.shape[1]), dtype=np.float32)
    if not sum_KD.size:
        return sum_KD
    for chosen in chunks(len(vectors_ND), vectors_ND.shape[1]):
        order = np.argsort(key_N[chosen], kind="stable")
        sorted_keys = key_N[chosen][order]
        first = np.flatnonzero(np.diff(sorted_keys, prepend=-1))
        sum_KD[sorted_keys[first]] += np.add.reduceat(vectors_ND[chosen][order], first, axis=0)
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
