"""Gives the vectors of tiny-clip what CLIP's are full of: how a picture was taken, for which it has no words here.

CLIP vectors of two photographs of one person differ by backdrop, light and pose, and all of them lie in a narrow cone.
A model that was trained on captions of looks alone hardly keeps those. The directions that it does keep are lengthened
by a linear map of the image tower, with the inverse map in the text tower: every product of an image and a text stays
as it was, so that words are found as before, while vectors tell identities apart much less.
"""

# Shapes: N images, D dimensions, K words, T directions of words, R others, S directions of the scene.

from typing import Any, Final

import torch
from torch import Tensor
from torch.linalg import cholesky, eigh, inv, qr, svd

SMALLEST: Final = 1e-3
"""Share of the largest variance between identities that any direction counts with."""


def lengthen_scene(model: Any, pairs_2ND: Tensor, words_KD: Tensor, directions: int, gain: float) -> None:
    """Lengthen the `directions` in which two images of one identity differ most, compared with identities.

    `pairs_2ND` are features of two images of each identity; directions of words are left alone.
    """
    others_DR = _complement(words_KD)
    scene_DS = _scene(pairs_2ND @ others_DR, directions)
    basis_DS = qr(others_DR @ scene_DS).Q
    identity_DD = torch.eye(len(basis_DS), dtype=basis_DS.dtype)
    map_DD = identity_DD + (gain - 1) * basis_DS @ basis_DS.T
    with torch.no_grad():
        _multiply(model.visual.attnpool.c_proj.weight, map_DD)
        _multiply(model.visual.attnpool.c_proj.bias, map_DD)
        _multiply(model.text_projection.T, inv(map_DD))


def _complement(words_KD: Tensor) -> Tensor:
    """The directions [D, R] in which the words do not differ."""
    _, lengths, rows_DD = svd(words_KD - words_KD.mean(dim=0), full_matrices=True)
    rank = int((lengths > SMALLEST * lengths[0]).sum())
    others_DR: Tensor = rows_DD[rank:].T
    return others_DR


def _scene(pairs_2NR: Tensor, count: int) -> Tensor:
    """The directions [R, S] with the most variance within identities, in units of the variance between them."""
    apart_NR, means_NR = pairs_2NR[0] - pairs_2NR[1], pairs_2NR.mean(dim=0)
    means_NR = means_NR - means_NR.mean(dim=0)
    within_RR = apart_NR.T @ apart_NR / (2 * len(apart_NR))
    values_R, vectors_RR = eigh(means_NR.T @ means_NR / len(means_NR) - within_RR / 2)
    between_RR = vectors_RR @ torch.diag(values_R.clamp(min=SMALLEST * float(values_R.max()))) @ vectors_RR.T
    unit_RR = inv(cholesky(between_RR))
    scene_RS: Tensor = unit_RR.T @ eigh(unit_RR @ within_RR @ unit_RR.T).eigenvectors[:, -count:]
    return scene_RS


def _multiply(weights: Tensor, map_DD: Tensor) -> None:
    weights.copy_((map_DD @ weights.double()).to(weights.dtype))
