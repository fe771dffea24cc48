"""Fewer dimensions for identity vectors: the subspace that keeps the most of them.

Of all subspaces of D dimensions through the origin, that of the leading directions of VᵀV changes the inner products of
the vectors the least. The mean is not removed: it is one of the directions, and separation removes it where it does.
"""

# Shapes: M vectors of a part, E dimensions they have, D they shall have.

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import GifError

SHORTEST: Final = 1e-5
"""Of a unit vector; what is shorter in the subspace has no direction there."""
Floats = NDArray[np.floating]


def leading_directions(parts: Iterable[Floats], dimension: int) -> NDArray[np.float64]:
    """An orthonormal basis [E, D] of the subspace, the strongest direction first; vectors come in parts."""
    moment_EE = sum(part_ME.T.astype(np.float64) @ part_ME for part_ME in parts)
    _, basis_EE = np.linalg.eigh(moment_EE)
    leading_ED: NDArray[np.float64] = basis_EE[:, ::-1][:, :dimension]
    return leading_ED


def project(vectors_ME: Floats, basis_ED: NDArray[np.float64]) -> NDArray[np.float32]:
    """The vectors in the subspace, of unit length again."""
    inside_MD = vectors_ME @ basis_ED
    length_M1 = np.linalg.norm(inside_MD, axis=1, keepdims=True)
    if (length_M1 < SHORTEST).any():
        raise GifError(
            f"{int((length_M1 < SHORTEST).sum())} identity vectors have nothing in the {basis_ED.shape[1]} leading "
            "dimensions: raise separation.dimension"
        )
    unit_MD: NDArray[np.float32] = (inside_MD / length_M1).astype(np.float32)
    return unit_MD
