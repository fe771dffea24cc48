"""The threshold between known and unknown for one gallery: at most a share `fpir` of unknown faces reach it."""

# Shapes: U images of unknown identities, N identities, D dimensions.

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.galleries.index import Index
from gif_core.recognition import calibrate_threshold
from schemas.galleries import GalleryThreshold

FPIR: Final = 0.01
MOST_UNKNOWN: Final = 1000
"""Images of held-out identities that are embedded for a calibration."""
ROUNDING: Final = 1e-6
"""A cosine that is summed in another order, by another index or for one face alone, differs by less."""


@dataclass(frozen=True)
class UnknownFaces:
    """Features of faces that are not enrolled."""

    features_UD: NDArray[np.float32]
    labels: list[str]
    origin: str


def calibrate_gallery(index: Index, unknown: UnknownFaces, fpir: float = FPIR) -> GalleryThreshold:
    """The lowest cosine that at most a share `fpir` of the unknown faces reach with any identity of the gallery."""
    best_U = index.search(unknown.features_UD, 1)[0][:, 0]
    return GalleryThreshold(
        cosine=calibrate_threshold(best_U, fpir) + ROUNDING,
        fpir=fpir,
        unknown_images=len(best_U),
        unknown_identities=len(set(unknown.labels)),
        origin=unknown.origin,
    )
