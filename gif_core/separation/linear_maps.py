"""Linear maps between identity vectors and code vectors.

`fit_map` and `place` start the code vectors of new identities where known ones suggest them. `leading_directions` and
`project` reduce the dimensions: of all subspaces of D dimensions, the leading directions of VᵀV change inner products
the least. The mean is not removed: it is one of the directions, and separation removes it.
"""

# Shapes: N known identities, M vectors of a part, E dimensions of identity vectors, D of code vectors.

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import GifError

CHUNK: Final = 8192
RIDGE: Final = 1e-3
"""Of the mean variance; keeps directions that nobody uses from being enlarged."""
SHORTEST: Final = 1e-5
"""Of a unit vector; what is shorter in the subspace has no direction there."""
Floats = NDArray[np.floating]


def fit_map(vectors_NE: Floats, code_vectors_ND: Floats) -> NDArray[np.float64]:
    """The matrix W [E + 1, D], with a constant, of least |V W - H|^2 + ridge |W|^2; rows are read in chunks."""
    if len(vectors_NE) != len(code_vectors_ND):
        raise ValueError(f"{len(vectors_NE)} vectors do not fit {len(code_vectors_ND)} code vectors")
    width = vectors_NE.shape[1] + 1
    moment_EE, product_ED = np.zeros((width, width)), np.zeros((width, code_vectors_ND.shape[1]))
    for start in range(0, len(vectors_NE), CHUNK):
        chunk = slice(start, start + CHUNK)
        some_ME = _with_constant(vectors_NE[chunk])
        moment_EE += some_ME.T @ some_ME
        product_ED += some_ME.T @ code_vectors_ND[chunk]
    ridge = RIDGE * max(np.trace(moment_EE) / width, np.finfo(np.float64).tiny)
    weights_ED: NDArray[np.float64] = np.linalg.solve(moment_EE + ridge * np.eye(width), product_ED)
    return weights_ED


def place(vectors_ME: Floats, map_ED: NDArray[np.float64]) -> NDArray[np.float32]:
    """Unit rows where the map puts new identities."""
    placed_MD = _with_constant(vectors_ME) @ map_ED
    length_M1 = np.linalg.norm(placed_MD, axis=1, keepdims=True)
    if len(length_M1) and not length_M1.all():
        raise ValueError(f"the vector of new person {int(length_M1.argmin())} has no place among the code vectors")
    unit_MD: NDArray[np.float32] = (placed_MD / length_M1).astype(np.float32)
    return unit_MD


def _with_constant(vectors_ME: Floats) -> NDArray[np.float64]:
    return np.concatenate([vectors_ME, np.ones((len(vectors_ME), 1))], axis=1, dtype=np.float64)


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
