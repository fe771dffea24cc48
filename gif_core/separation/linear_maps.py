"""Linear maps from identity vectors to code vectors.

`fit_map` and `place` predict the code vectors of new identities from those of known ones, as a start for their
separation. `leading_directions` and `project` reduce the dimension: of all D-dimensional subspaces, the leading
directions of VᵀV change inner products the least. The mean is kept here, because separation removes it.
"""

# Shapes: N known identities, M vectors of a part, E dimensions of identity vectors (+ 1 in maps with a constant term),
# D dimensions of code vectors.

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import GifError

CHUNK: Final = 8192
RIDGE: Final = 1e-3
"""As a share of the mean variance; keeps directions with little variance from being amplified."""
SHORTEST: Final = 1e-5
"""A unit vector whose projection is shorter than this has no direction in the subspace."""
Floats = NDArray[np.floating]


def fit_map(vectors_NE: Floats, code_vectors_ND: Floats) -> NDArray[np.float64]:
    """Return W [E + 1, D], with a constant term, that minimises |V W - H|^2 + ridge |W|^2; rows are read in chunks."""
    if len(vectors_NE) != len(code_vectors_ND):
        raise ValueError(f"got {len(vectors_NE)} vectors but {len(code_vectors_ND)} code vectors")
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
    """Return the unit vectors to which the map takes new identities."""
    placed_MD = _with_constant(vectors_ME) @ map_ED
    length_M1 = np.linalg.norm(placed_MD, axis=1, keepdims=True)
    if len(length_M1) and not length_M1.all():
        raise ValueError(f"the map takes the vector of new identity {int(length_M1.argmin())} to zero")
    unit_MD: NDArray[np.float32] = (placed_MD / length_M1).astype(np.float32)
    return unit_MD


def _with_constant(vectors_ME: Floats) -> NDArray[np.float64]:
    return np.concatenate([vectors_ME, np.ones((len(vectors_ME), 1))], axis=1, dtype=np.float64)


def leading_directions(parts: Iterable[Floats], dimension: int) -> NDArray[np.float64]:
    """Return an orthonormal basis [E, D] of the leading subspace, strongest direction first; vectors come in parts."""
    moment_EE = sum(part_ME.T.astype(np.float64) @ part_ME for part_ME in parts)
    _, basis_EE = np.linalg.eigh(moment_EE)
    leading_ED: NDArray[np.float64] = basis_EE[:, ::-1][:, :dimension]
    return leading_ED


def project(vectors_ME: Floats, basis_ED: NDArray[np.float64]) -> NDArray[np.float32]:
    """Project the vectors onto the subspace and normalise them."""
    inside_MD = vectors_ME @ basis_ED
    length_M1 = np.linalg.norm(inside_MD, axis=1, keepdims=True)
    if (length_M1 < SHORTEST).any():
        raise GifError(
            f"{int((length_M1 < SHORTEST).sum())} identity vectors have no component in the {basis_ED.shape[1]} "
            "leading dimensions: raise separation.dimension"
        )
    unit_MD: NDArray[np.float32] = (inside_MD / length_M1).astype(np.float32)
    return unit_MD
